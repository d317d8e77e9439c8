// Figures follow the page: its colours, light, dark or on paper, and its width.
(() => {
  const PRINT_WIDTH = 640, LEGEND_LINE = 30;
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const figures = () => [...document.querySelectorAll(".figure .js-plotly-plot")];
  const titles = new Map(); // titles of axes as they were given
  const fonts = new Map();
  const heights = new Map(); // of figures with one line of legend
  // whether a figure gave its text a colour itself
  function fixed(plot, i) {
    const key = plot.id + " " + i;
    if (!fonts.has(key)) fonts.set(key, Boolean(plot.data[i].textfont?.color));
    return fonts.get(key);
  }

  // words of a title on as many lines as a length of so many pixels needs
  function wrapped(text, pixels) {
    const most = Math.max(12, Math.floor(pixels / 7.2));
    const lines = [""];
    for (const word of text.split(" ")) {
      const last = lines[lines.length - 1];
      if (last && last.length + word.length >= most) lines.push(word);
      else lines[lines.length - 1] = last ? last + " " + word : word;
    }
    return lines.join("<br>");
  }

  function adapt(plot, width) {
    const ink = style("--ink"), line = style("--line"), full = plot._fullLayout;
    const layout = { "font.color": ink, "legend.font.color": ink, "hoverlabel.bgcolor": style("--paper"), "hoverlabel.font.color": ink };
    // not autosize, which does not see a new width if a height was set before
    layout.width = width || plot.parentElement.clientWidth;
    const available = layout.width - 130;
    const axes = Object.keys(full).filter((name) => /^[xy]axis\d*$/.test(name));
    const across = Math.max(1, axes.length / 2);
    for (const name of axes) {
      Object.assign(layout, { [name + ".gridcolor"]: line, [name + ".zerolinecolor"]: line, [name + ".linecolor"]: line });
      const key = plot.id + name;
      if (!titles.has(key)) titles.set(key, plot.layout[name]?.title?.text ?? "");
      layout[name + ".title.font.size"] = 13;
      if (titles.get(key)) layout[name + ".title.text"] = wrapped(titles.get(key), name[0] === "x" ? available / across : full.height - 90);
    }
    (plot.layout.annotations ?? []).forEach((_, i) => { layout[`annotations[${i}].font.color`] = ink; });
    if (!heights.has(plot.id)) heights.set(plot.id, full.height);
    layout.height = heights.get(plot.id);
    // a legend of many lines adds to the height, it does not take it from the plot
    const done = Plotly.relayout(plot, layout).then(() => {
      const legend = plot.querySelector(".legend")?.getBBox().height ?? 0;
      const height = Math.round(layout.height + Math.max(0, legend - LEGEND_LINE));
      for (const box of [plot, plot.parentElement]) box.style.height = `${height}px`;
      return Plotly.relayout(plot, { height });
    });
    plot.data.forEach((trace, i) => {
      if (trace.type === "heatmap") Plotly.restyle(plot, { colorscale: [[[0, style("--low")], [1, style("--high")]]] }, [i]);
      if (trace.error_y?.color) Plotly.restyle(plot, { "error_y.color": ink }, [i]);
      if (trace.mode?.includes("text") && !fixed(plot, i)) Plotly.restyle(plot, { "textfont.color": ink }, [i]);
    });
    return done;
  }

  const adaptAll = (width) => figures().forEach((plot) => adapt(plot, width));
  let waiting;
  addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(adaptAll, 150); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => adaptAll());
  addEventListener("beforeprint", () => adaptAll(PRINT_WIDTH));
  addEventListener("afterprint", () => adaptAll());
  adaptAll();
})();
