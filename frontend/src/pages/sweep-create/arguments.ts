import type { CreateRequest } from "@/api/types";
import { type Value, parseValue } from "./values";

/** How a script gets parameters that its arguments do not have yet. */
export const PASSING = ["flags", "pairs", "variables"] as const;
export type Passing = (typeof PASSING)[number];

/** Words that stand for all parameters. */
const ALL_WORDS = ["${sweep.args}", "${sweep.flags}", "${sweep.pairs}"];
const NAME = "[A-Za-z_][A-Za-z0-9_.-]{0,99}";
const FLAG = new RegExp(`^--?(${NAME})$`);
const FLAG_WITH_VALUE = new RegExp(`^--?(${NAME})=(.*)$`, "s");
const PAIR = new RegExp(`^\\+{0,2}(${NAME})=(.*)$`, "s");
const NEGATIVE_NUMBER = /^-\.?\d/;

/** A parameter in the arguments of a script. `at`: its word; `words`: how many it has, with its value. */
export interface Argument {
  name: string;
  value: Value;
  part: "args" | "command";
  at: number;
  words: number;
}

/** Returns whether the next word is a value, and no further flag. */
const isValueWord = (word: string | undefined): word is string =>
  word !== undefined && (!word.startsWith("-") || NEGATIVE_NUMBER.test(word));

/** Returns the parameters in a script's arguments: `--lr 0.1`, `--lr=0.1` and `lr=0.1`; a flag alone is true. */
export function listArguments(request: Partial<CreateRequest>): Argument[] {
  const { args = [], command = [] } = request.entrypoint ?? {};
  return [...listWords(command, "command"), ...listWords(args, "args")];
}

function listWords(words: string[], part: Argument["part"]): Argument[] {
  const found: Argument[] = [];
  for (let at = 0; at < words.length; at++) {
    const word = words[at] ?? "";
    const [, name, value] = FLAG_WITH_VALUE.exec(word) ?? PAIR.exec(word) ?? [];
    const [, flag] = FLAG.exec(word) ?? [];
    if (name !== undefined && value !== undefined) {
      found.push({ name, value: parseValue(value), part, at, words: 1 });
    } else if (flag !== undefined) {
      const next = words[at + 1];
      const hasValue = isValueWord(next);
      found.push({ name: flag, value: hasValue ? parseValue(next) : true, part, at, words: hasValue ? 2 : 1 });
      if (hasValue) at++;
    }
  }
  return found;
}

/** A parameter of a sweep. `conditional`: some trials do not have it. */
export interface Passed {
  name: string;
  conditional: boolean;
}

const getWord = (words: Record<Argument["part"], string[]>, { part, at }: Argument) => words[part][at] ?? "";

/**
 * Returns the request whose arguments leave room for the parameters: `--lr 0.1` becomes `--lr {lr}`. What the
 * arguments do not have is added as `passing` says. A request without a script of its own stays as it is.
 */
export function bindParameters(
  request: Partial<CreateRequest>,
  parameters: Passed[],
  passing: Passing,
): Partial<CreateRequest> {
  const { entrypoint } = request;
  if (!entrypoint) return request;
  const words = { args: [...(entrypoint.args ?? [])], command: [...(entrypoint.command ?? [])] };
  const all = [...words.command, ...words.args];
  const unbound = parameters.filter(({ name }) => name && !all.some((word) => word.includes(`{${name}}`)));
  if (unbound.length === 0 || all.some((word) => ALL_WORDS.includes(word))) return request;
  const places = listArguments(request);
  const findPlaces = ({ name }: Passed) => places.filter((each) => each.name === name);
  const isSwitch = (place: Argument) => place.words === 1 && !getWord(words, place).includes("=");
  const missing = unbound.filter((each) => findPlaces(each).length === 0);
  const removed = new Set<string>();
  const added: string[] = [];
  const remove = (part: Argument["part"], at: number) => removed.add(`${part} ${at}`);
  if (unbound.some((each) => findPlaces(each).some(isSwitch))) {
    // A switch is there or not: only all parameters together have a word for that.
    for (const place of unbound.flatMap(findPlaces))
      for (let next = 0; next < place.words; next++) remove(place.part, place.at + next);
    added.push("${sweep.flags}");
  } else {
    for (const parameter of unbound)
      for (const place of findPlaces(parameter)) {
        const { part, at } = place;
        const word = getWord(words, place);
        const value = `{${parameter.name}}`;
        if (place.words === 1) words[part][at] = `${word.slice(0, word.indexOf("=") + 1)}${value}`;
        else if (!parameter.conditional) words[part][at + 1] = value;
        else {
          // Of two words, the first one would stay where a trial does not have the parameter.
          words[part][at] = `${word}=${value}`;
          remove(part, at + 1);
        }
      }
    const before = { flags: "--", pairs: "", variables: "" }[passing];
    if (passing !== "variables") added.push(...missing.map(({ name }) => `${before}${name}={${name}}`));
  }
  const target = words.command.length > 0 && words.args.length === 0 ? "command" : "args";
  const join = (part: Argument["part"]) => [
    ...words[part].filter((_, at) => !removed.has(`${part} ${at}`)),
    ...(part === target ? added : []),
  ];
  return {
    ...request,
    entrypoint: {
      ...entrypoint,
      ...(entrypoint.command && { command: join("command") }),
      ...((entrypoint.args || target === "args") && { args: join("args") }),
    },
  };
}
