// Small lines without axes.

import { svg } from "./dom.js";

const WIDTH = 120;
const HEIGHT = 28;

/** A line of the finite values. Null with fewer than two. */
export function sparkline(values, label) {
  const finite = values.map((y, x) => [x, y]).filter(([, y]) => Number.isFinite(y));
  if (finite.length < 2) return null;
  const low = Math.min(...finite.map(([, y]) => y));
  const high = Math.max(...finite.map(([, y]) => y));
  const scale = high > low ? (HEIGHT - 4) / (high - low) : 0;
  const points = finite.map(([x, y]) => {
    const left = (x / (values.length - 1)) * (WIDTH - 2) + 1;
    const top = scale ? HEIGHT - 2 - (y - low) * scale : HEIGHT / 2;
    return `${left.toFixed(1)},${top.toFixed(1)}`;
  });
  return svg(
    "svg",
    { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    svg("polyline", { points: points.join(" ") }),
  );
}
