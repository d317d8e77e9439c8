(() => {
  const element = (id) => document.getElementById(id);
  const { token, colours } = JSON.parse(element("data").textContent);
  const SHOWN = 50;
  element("token-label").hidden = !token;

  async function ask(path, body) {
    const headers = token ? { Authorization: "Bearer " + element("token").value.trim() } : {};
    if (body) headers["Content-Type"] = "application/json";
    const answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
    const content = await answer.json();
    if (!answer.ok) throw new Error(content.detail);
    return content;
  }

  // cells are texts, or elements; the first one names the row
  function fill(id, rows) {
    const heads = [...element(id).parentElement.tHead.rows[0].cells];
    element(id).replaceChildren(...rows.map((cells) => {
      const row = document.createElement("tr");
      cells.forEach((value, i) => {
        const cell = document.createElement(i ? "td" : "th");
        if (i) cell.dataset.label = heads[i].textContent; else cell.scope = "row";
        cell.className = value instanceof Node ? "bar" : heads[i].className;
        if (value instanceof Node) delete cell.dataset.label;
        cell.append(value);
        row.append(cell);
      });
      return row;
    }));
  }

  function bar(share, colour) {
    const track = document.createElement("div"), part = document.createElement("i");
    track.className = "track";
    part.style.cssText = `width:${100 * share}%;background:${colour}`;
    track.append(part);
    return track;
  }

  const percent = (value) => (100 * value).toFixed(1) + "%";
  const distance = (hops) => hops === null ? "not connected" : hops === 0 ? "itself" : hops + (hops > 1 ? " hops" : " hop");
  const label = (member) => member.label === null ? "unknown" : member.label + (member.part === "train" ? " (trained on)" : "");

  function show(why, node) {
    const colour = (name) => colours[name] ?? getComputedStyle(document.documentElement).getPropertyValue("--high");
    const speaks = (value) => `+${Math.abs(value).toFixed(3)} for ${value < 0 ? why.runner_up : why.predicted}`;
    const size = (one) => -Math.abs(one.contribution);
    element("answer-title").textContent = `${why.id}: ${node.predicted}`;
    element("words").textContent = why.words[0];
    element("more").textContent = why.words.slice(1).join(" ");
    const classes = Object.entries(node.probability).sort((a, b) => b[1] - a[1]);
    fill("classes", classes.map(([name, value]) => [name, percent(value), bar(value, colour(name))]));
    fill("columns", why.columns.map((one) => [one.name, one.value, speaks(one.contribution)]));
    const members = [...why.members].sort((a, b) => size(a) - size(b));
    element("patch-caption").textContent = "Largest contribution first, in log-odds." +
      (members.length > SHOWN ? ` ${SHOWN} of ${members.length} are listed.` : "");
    fill("members", members.slice(0, SHOWN).map((one) => [String(one.id), distance(one.hops), label(one), speaks(one.contribution)]));
    element("own").hidden = !why.columns.length;
    element("patch").classList.toggle("wide", !why.columns.length);
    element("answer").hidden = element("patch").hidden = false;
  }

  async function look() {
    const id = element("id").value.trim();
    element("error").hidden = true;
    try {
      const why = await ask("explain/" + encodeURIComponent(id));
      const { nodes } = await ask("predict", { ids: [why.id] });
      show(why, nodes[0]);
    } catch (error) {
      for (const name of ["answer", "own", "patch"]) element(name).hidden = true;
      element("error").textContent = error.message;
      element("error").hidden = false;
    }
  }

  element("form").addEventListener("submit", (event) => {
    event.preventDefault();
    history.replaceState(null, "", "#" + encodeURIComponent(element("id").value.trim()));
    look();
  });
  // the address of a node can be kept and sent
  if (location.hash.length > 1) {
    element("id").value = decodeURIComponent(location.hash.slice(1));
    if (!token) look();
  }
})();
