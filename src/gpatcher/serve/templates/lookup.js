(() => {
  const element = (id) => document.getElementById(id);
  const { token, colours, numbers } = JSON.parse(element("data").textContent);
  const SHOWN = 50, INTEGER = /^(0|-?[1-9]\d*)$/; // as text: JavaScript rounds integers beyond 2^53
  element("token-label").hidden = !token;

  async function ask(path, body) {
    const headers = token ? { Authorization: "Bearer " + element("token").value.trim() } : {};
    if (body) headers["Content-Type"] = "application/json";
    const answer = await fetch(path, { method: body ? "POST" : "GET", headers, body });
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

  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const hide = (...names) => names.forEach((name) => { element(name).hidden = true; });

  function showAnswer(node) {
    element("answer-title").textContent = `${node.id}: ${node.predicted}`;
    const found = node.probability ? `Class ${node.predicted} with ${percent(node.confidence)}` : `Predicted ${node.predicted}`;
    element("words").textContent = `${found}. The explanation is being made …`;
    element("more").textContent = "";
    const classes = Object.entries(node.probability ?? {}).sort((a, b) => b[1] - a[1]);
    element("classes").parentElement.hidden = !classes.length; // a number has none
    fill("classes", classes.map(([name, value]) => [name, percent(value), bar(value, colours[name] ?? style("--high"))]));
    element("answer").hidden = false;
  }

  function showReasons(why) {
    // as many decimals as show the largest contribution to four digits
    const largest = Math.max(...why.members.map((one) => Math.abs(one.contribution)));
    const decimals = largest > 0 ? Math.min(Math.max(3 - Math.floor(Math.log10(largest)), 0), 12) : 3;
    const signed = (value) => (value < 0 ? "" : "+") + value.toFixed(decimals);
    const speaks = (value) => why.classes.length ? `+${Math.abs(value).toFixed(3)} for ${value < 0 ? why.runner_up : why.predicted}` : signed(value);
    const size = (one) => -Math.abs(one.contribution);
    element("words").textContent = why.words[0];
    element("more").textContent = why.words.slice(1).join(" ");
    fill("columns", why.columns.map((one) => [one.name, one.value, speaks(one.contribution)]));
    const members = [...why.members].sort((a, b) => size(a) - size(b));
    element("patch-caption").textContent = `Largest contribution first, in ${why.classes.length ? "log-odds" : "the unit of the label"}.` +
      (members.length > SHOWN ? ` ${SHOWN} of ${members.length} are listed.` : "");
    fill("members", members.slice(0, SHOWN).map((one) => [String(one.id), distance(one.hops), label(one), speaks(one.contribution)]));
    element("own").hidden = !why.columns.length;
    element("patch").classList.toggle("wide", !why.columns.length);
    element("patch").hidden = false;
  }

  let latest = 0;
  async function look() {
    const id = element("id").value.trim(), turn = ++latest;
    hide("error", "answer", "own", "patch");
    try {
      const { nodes } = await ask("predict", `{"ids": [${numbers && INTEGER.test(id) ? id : JSON.stringify(id)}]}`);
      if (turn !== latest) return; // another node was asked for meanwhile
      showAnswer(nodes[0]);
      const why = await ask("explain/" + encodeURIComponent(id));
      if (turn === latest) showReasons(why);
    } catch (error) {
      if (turn !== latest) return;
      if (!element("answer").hidden) element("words").textContent = "There is no explanation.";
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
