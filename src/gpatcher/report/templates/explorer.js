(() => {
  const element = (name) => document.getElementById("explorer-" + name);
  const { nodes, numbers, colours } = JSON.parse(element("data").textContent);
  const SHOWN = 100; // several rounds reach many more nodes than a patch has
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const distance = (hops) => hops === null ? "not connected" : hops === 0 ? "itself" : hops + (hops > 1 ? " hops" : " hop");
  const label = (m) => m.label === null ? "unknown" : m.label + (m.part === "train" ? " (trained on)" : "");
  const wrong = (n) => !numbers && n.label !== null && n.label !== n.predicted;
  // a contribution speaks for a class, and has its colour, or it raises or lowers a number
  const favoured = (node, v) => numbers ? (v < 0 ? "lowers" : "raises") : v < 0 ? node.runner_up : node.predicted;
  const colour = (node, v) => colours[favoured(node, v)];
  // as many decimals as show the largest contribution to four digits
  const decimals = (node) => {
    const largest = Math.max(...node.members.map((m) => Math.abs(m.contribution)));
    return largest > 0 ? Math.min(Math.max(3 - Math.floor(Math.log10(largest)), 0), 12) : 3;
  };
  const contribution = (node, v) => numbers ? (v < 0 ? "" : "+") + v.toFixed(decimals(node)) : `+${Math.abs(v).toFixed(3)} for ${favoured(node, v)}`;
  const answer = (n) => n.label === null ? " (no label)" : wrong(n) || numbers ? ` (label ${n.label})` : "";
  let current = null;

  function list() {
    const text = element("search").value.trim().toLowerCase(), select = element("nodes");
    const kept = nodes.map((n, i) => [n, i]).filter(([n]) =>
      (!element("wrong").checked || wrong(n)) &&
      [n.id, n.predicted, n.label ?? ""].some((v) => String(v).toLowerCase().includes(text)));
    select.replaceChildren(...kept.map(([n, i]) => {
      const option = new Option(`${n.id}: ${n.predicted}` + answer(n), i);
      if (wrong(n)) option.className = "wrong";
      return option;
    }));
    const none = text ? `No node in the list matches “${element("search").value.trim()}”. ` : "No node is listed. ";
    element("count").textContent = (kept.length ? "" : none) + `${kept.length} of ${nodes.length} nodes listed`;
    if (kept.length) select.selectedIndex = 0;
    show(kept.length ? kept[0][0] : null);
  }

  // rows of [text, class] cells, the first one the header, and a bar for the value
  function rows(table, entries, node, most) {
    const heads = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
    table.tBodies[0].replaceChildren(...entries.map(([cells, value]) => {
      const row = document.createElement("tr");
      cells.forEach(([text, name, dot], i) => {
        const cell = document.createElement(i ? "td" : "th");
        if (i) cell.dataset.label = heads[i]; else cell.scope = "row";
        if (name) cell.className = name;
        if (dot) { const swatch = document.createElement("span"); swatch.className = "swatch"; swatch.style.background = dot; cell.append(swatch); }
        cell.append(text);
        row.append(cell);
      });
      const bar = row.insertCell(), track = document.createElement("div"), fill = document.createElement("i");
      bar.className = "bar"; track.className = "track";
      const width = 50 * Math.abs(value) / most;
      fill.style.cssText = `width:${width}%;left:${value < 0 ? 50 - width : 50}%;background:${colour(node, value)}`;
      track.append(fill); bar.append(track);
      return row;
    }));
  }

  function show(node) {
    current = node;
    element("shown").hidden = element("tables").hidden = node === null;
    if (node === null) return;
    const [first, ...rest] = node.words;
    element("words").textContent = first;
    element("sum").textContent = rest.join(" ") + (node.members.length > SHOWN ? ` ${SHOWN} of ${node.members.length} members are listed.` : "");
    const own = node.columns, members = node.members.slice(0, SHOWN);
    const most = Math.max(...[...members, ...own].map((m) => Math.abs(m.contribution))) || 1;
    element("own").hidden = !own.length;
    rows(element("columns"), own.map((c) => [[[c.name], [c.value], [contribution(node, c.contribution), "number"]], c.contribution]), node, most);
    rows(element("members"), members.map((m) => [
      [[String(m.id)], [distance(m.hops)], [label(m), "", m.label !== null && colours[m.label]], [m.score.toFixed(4), "number"], [contribution(node, m.contribution), "number"]],
      m.contribution]), node, most);
    draw(node, Math.max(...members.map((m) => Math.abs(m.contribution))) || 1);
  }

  function draw(node, most) {
    const members = node.members.slice(0, SHOWN), x = [], y = [];
    for (const [a, b] of node.edges.filter((edge) => Math.max(...edge) < SHOWN)) { x.push(members[a].x, members[b].x, null); y.push(members[a].y, members[b].y, null); }
    const escape = (v) => String(v).replace(/[&<>]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[c]);
    const ink = style("--ink"), many = members.length > 24 || element("plot").clientWidth < 420;
    Plotly.react(element("plot"), [
      { x, y, mode: "lines", line: { color: style("--soft"), width: 0.7 }, hoverinfo: "skip" },
      {
        x: members.map((m) => m.x), y: members.map((m) => m.y), mode: "markers+text", hoverinfo: "text",
        text: members.map((m, i) => !many || i < 8 || m.hops === 0 ? escape(m.id) : ""), textposition: "bottom center", cliponaxis: false, textfont: { color: ink },
        hovertext: members.map((m) => `${escape(m.id)}: ${distance(m.hops)}, label ${escape(label(m))}<br>${escape(contribution(node, m.contribution))}`),
        marker: {
          size: members.map((m) => 11 + 22 * Math.abs(m.contribution) / most), opacity: 1,
          color: members.map((m) => colour(node, m.contribution)),
          line: { color: ink, width: members.map((m) => m.hops === 0 ? 3 : 0.5) },
        },
      },
    ], {
      showlegend: false, margin: { l: 10, r: 10, t: 10, b: 20 }, font: { family: "system-ui, sans-serif", size: 11, color: ink },
      paper_bgcolor: "rgba(0, 0, 0, 0)", plot_bgcolor: "rgba(0, 0, 0, 0)",
      xaxis: { visible: false }, yaxis: { visible: false, scaleanchor: "x" }, hovermode: "closest",
    }, { displaylogo: false, displayModeBar: false, responsive: true, showSendToCloud: false });
    if (!element("plot").dataset.ready) {
      element("plot").dataset.ready = "yes";
      const mark = (event, on) => event.points.forEach((p) => {
        const row = p.curveNumber === 1 && element("members").tBodies[0].rows[p.pointIndex];
        if (row) row.classList.toggle("hovered", on);
      });
      element("plot").on("plotly_hover", (event) => mark(event, true));
      element("plot").on("plotly_unhover", (event) => mark(event, false));
    }
  }

  element("search").addEventListener("input", list);
  element("wrong").addEventListener("change", list);
  element("nodes").addEventListener("change", (event) => show(nodes[Number(event.target.value)]));
  for (const name of ["beforeprint", "afterprint"]) addEventListener(name, () => show(current));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => show(current));
  list();
})();
