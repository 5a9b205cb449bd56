/** A scale of values, numbers or words, between two places in pixels. */
export interface Scale {
  place: (value: string | undefined) => number;
  ticks: { label: string; at: number }[];
}

const MAX_TICKS = 8;
/** Numbers that differ by a larger factor are on a logarithmic scale: learning rates. */
const LOGARITHMIC_FROM = 10;

/** Returns the scale of these values: of numbers where all are, else of words in the order of the alphabet. A missing
    value is at the beginning. */
export function buildScale(values: (string | undefined)[], begin: number, end: number, log: boolean): Scale {
  const known = [...new Set(values.filter((value): value is string => value !== undefined))];
  const numbers = known.map(Number);
  if (known.length > 0 && known.every((value) => value.trim() !== "") && numbers.every(Number.isFinite)) {
    return buildNumberScale(numbers, begin, end, log);
  }
  const words = known.sort((one, other) => one.localeCompare(other));
  const at = (index: number) => begin + ((index + 0.5) * (end - begin)) / Math.max(1, words.length);
  const every = Math.max(1, Math.ceil(words.length / MAX_TICKS));
  return {
    place: (value) => (value === undefined ? begin : at(words.indexOf(value))),
    ticks: words.map((label, index) => ({ label, at: at(index) })).filter((_, index) => index % every === 0),
  };
}

function buildNumberScale(numbers: number[], begin: number, end: number, log: boolean): Scale {
  const low = Math.min(...numbers);
  const high = Math.max(...numbers);
  const logarithmic = low > 0 && (log || high / low >= LOGARITHMIC_FROM);
  const convert = logarithmic ? Math.log10 : (value: number) => value;
  const width = convert(high) - convert(low);
  const place = (value: number) =>
    width > 0 ? begin + ((convert(value) - convert(low)) / width) * (end - begin) : (begin + end) / 2;
  const sorted = [...new Set(numbers)].sort((one, other) => one - other);
  const every = Math.max(1, Math.ceil(sorted.length / MAX_TICKS));
  const shown = sorted.filter((_, index) => index % every === 0 || index === sorted.length - 1);
  const ticks: Scale["ticks"] = [];
  for (const value of shown) {
    const at = place(value);
    if (ticks.every((tick) => Math.abs(tick.at - at) >= 12)) ticks.push({ label: String(value), at });
  }
  return { place: (value) => (value === undefined ? begin : place(Number(value))), ticks };
}
