"""Write the tables of the tutorial to docs/data: people, who deals with whom, and five unseen people.

A person is a buyer, a seller or an agent and deals mostly with people of another role. The columns are weakly
informative, the edges more so. The role of about half of them is known.
"""

import csv
import random
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "data"
ROLES = {"buyer": 30, "seller": 40, "agent": 50}  # role: typical age
WORDS = {"buyer": "bargain gift need", "seller": "stock quality shop", "agent": "service contact broker"}
COUNTRIES = {"buyer": (2, 1, 1), "seller": (1, 2, 1), "agent": (1, 1, 2)}  # how often FR, DE, IT
PEOPLE, UNSEEN, PARTNERS = 600, 5, 4

Row = dict[str, object]


def person(rng: random.Random, name: str, role: str, known: bool) -> Row:
    """Return a row of the table of nodes."""
    about = rng.choices(WORDS[role].split(), k=1) + rng.choices(" ".join(WORDS.values()).split(), k=4)
    return {
        "id": name,
        "label": role if known else "",
        "age": max(18, round(rng.gauss(ROLES[role], 15))) if rng.random() < 0.9 else "",
        "verified": rng.random() < 0.5,
        "country": rng.choices(("FR", "DE", "IT"), COUNTRIES[role])[0],
        "joined": f"202{rng.randrange(5)}-{rng.randrange(1, 13):02}-15",
        "about": " ".join(about),
    }


def deals(rng: random.Random, name: str, role: str, people: list[tuple[str, str]]) -> list[Row]:
    """Return rows of the table of edges, nearly all to people of another role."""
    partners = [other for other in people if other[1] != role or rng.random() < 0.1]
    return [{"source": name, "target": other} for other, _ in rng.sample(partners, PARTNERS)]


def tables() -> dict[str, list[Row]]:
    """Return the rows of each file."""
    rng = random.Random(0)
    people = [(f"p{i:03}", rng.choice(list(ROLES))) for i in range(PEOPLE)]
    unseen = [(f"n{i}", rng.choice(list(ROLES))) for i in range(UNSEEN)]
    new = [person(rng, name, role, known=False) for name, role in unseen]
    return {
        "nodes.csv": [person(rng, name, role, known=rng.random() < 0.5) for name, role in people],
        "edges.csv": [edge for name, role in people for edge in deals(rng, name, role, people)],
        "new_nodes.csv": [{column: value for column, value in row.items() if column != "label"} for row in new],
        "new_edges.csv": [edge for name, role in unseen for edge in deals(rng, name, role, people)],
    }


def main(folder: Path = FOLDER) -> None:
    """Write all files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in tables().items():
        with (folder / name).open("w", newline="") as file:
            table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            table.writeheader()
            table.writerows(rows)


if __name__ == "__main__":
    main()
