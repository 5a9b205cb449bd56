const HIDDEN_CHARACTERS =
  /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Default_Ignorable_Code_Point}\u2800\\]|(?![ \u3000])\p{Zs}/gu;

/**
 * Returns a file name that is safe to show: `\u202e` for an invisible or reordering character, and `\\` for a
 * backslash. Send and compare the original name. `fermi.characters` does the same.
 */
export function escapeName(name: string): string {
  return name.replace(HIDDEN_CHARACTERS, (found) => {
    const code = found.codePointAt(0) ?? 0;
    if (found === "\\") return "\\\\";
    return code <= 0xffff ? `\\u${code.toString(16).padStart(4, "0")}` : `\\u{${code.toString(16)}}`;
  });
}
