"""Tables of people, devices and payments, in which fraud shows only in who shares a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpatcher.errors import InputError

_LARGEST = 8  # members of a group of people who share devices
_FRAUD = 0.2  # share of groups that commit fraud
_MIXED = 0.05  # share of people who do not do what their group does
_KNOWN = 0.8  # share of people whose label is known
_PAYMENTS = 8  # made by a person on average

Columns = dict[str, npt.NDArray[Any]]


def fraud_tables(people: int = 2000, seed: int = 0) -> dict[str, Columns]:
    """Draw tables of people, devices, uses and payments.

    People come in groups of one to eight who share one or two devices. In a fifth of the groups nearly all commit
    fraud, in the others hardly any. Groups of both kinds have the same sizes, numbers of devices and columns, and
    payments join random people, so only the labels of those who share a device are informative.

    Parameters
    ----------
    people : int
        Number of people, at least 50.
    seed : int

    Returns
    -------
    dict of str to dict of str to array
        ``people`` (id, label, age, country, joined), ``devices`` (id, system), ``uses`` (person, device, hours) and
        ``payments`` (payer, payee, amount, day). Both kinds of id are integers from 0. The label is fraud or honest,
        and empty where unknown. A person makes payments after joining.

    Examples
    --------
    >>> tables = fraud_tables(people=50)
    >>> {name: list(columns) for name, columns in tables.items()}["uses"]
    ['person', 'device', 'hours']
    """
    if people < 50:
        raise InputError(f"people must be at least 50, got {people}")
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(people), rng.integers(1, _LARGEST + 1, people))[:people]
    group = group[rng.permutation(people)]
    fraud = (rng.random(people) < _FRAUD)[group] ^ (rng.random(people) < _MIXED)
    known = rng.random(people) < _KNOWN
    joined = rng.integers(0, 700, people)

    # one or two devices a group; a member uses each of them with probability 0.8, at least one
    first = np.cumsum(np.append(0, 1 + (rng.random(people) < 0.5)))
    count = np.diff(first)[group]
    one = first[group] + rng.integers(0, count)
    other = np.where((count == 2) & (rng.random(people) < 0.8), 2 * first[group] + 1 - one, -1)
    owner, device = np.concatenate([np.stack([np.arange(people), one]), np.stack([np.arange(people), other])], axis=1)
    owner, device = owner[device >= 0], device[device >= 0]
    ids, device = np.unique(device, return_inverse=True)

    payer, payee = rng.integers(0, people, (2, _PAYMENTS * people))
    payer, payee = payer[payer != payee], payee[payer != payee]
    day = rng.integers(np.maximum(joined[payer], joined[payee]), 730)
    return {
        "people": {
            "id": np.arange(people),
            "label": np.where(known, np.where(fraud, "fraud", "honest"), ""),
            "age": rng.integers(18, 80, people),
            "country": rng.choice(["DE", "FR", "IT"], people),
            "joined": _dates(joined),
        },
        "devices": {"id": np.arange(len(ids)), "system": rng.choice(["android", "ios", "other"], len(ids))},
        "uses": {"person": owner, "device": device, "hours": rng.gamma(2.0, 2.0, len(owner)).round(1)},
        "payments": {
            "payer": payer,
            "payee": payee,
            "amount": rng.lognormal(3.0, 1.0, len(payer)).round(2),
            "day": _dates(day),
        },
    }


def _dates(days: npt.NDArray[Any]) -> npt.NDArray[Any]:
    dates: npt.NDArray[Any] = np.datetime64("2023-01-01") + days.astype("timedelta64[D]")
    return dates
