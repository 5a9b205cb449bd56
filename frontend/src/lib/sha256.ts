/** SHA-256 (FIPS 180-4) of chunks. `crypto.subtle` needs the whole file in memory, and a secure context. */

/**
 * The first 32 bits of the fractional parts of roots of the first primes: square roots for the initial hash, cube roots
 * for the rounds.
 */
const primes: number[] = [];
for (let n = 2; primes.length < 64; n++) if (primes.every((prime) => n % prime)) primes.push(n);
const fraction = (root: number) => ((root - Math.floor(root)) * 2 ** 32) | 0;
const INITIAL_HASH = primes.slice(0, 8).map((prime) => fraction(Math.sqrt(prime)));
const ROUNDS = Int32Array.from(primes, (prime) => fraction(Math.cbrt(prime)));

const BLOCK = 64;
const rotateRight = (value: number, by: number) => (value >>> by) | (value << (32 - by));

export class Sha256 {
  readonly #state = Int32Array.from(INITIAL_HASH);
  readonly #words = new Int32Array(64);
  readonly #rest = new Uint8Array(BLOCK);
  #held = 0;
  #length = 0;

  update(piece: Uint8Array): this {
    this.#length += piece.length;
    let at = 0;
    if (this.#held > 0) {
      at = Math.min(BLOCK - this.#held, piece.length);
      this.#rest.set(piece.subarray(0, at), this.#held);
      this.#held += at;
      if (this.#held < BLOCK) return this;
      this.#block(this.#rest, 0);
    }
    for (; at + BLOCK <= piece.length; at += BLOCK) this.#block(piece, at);
    this.#rest.set(piece.subarray(at));
    this.#held = piece.length - at;
    return this;
  }

  hex(): string {
    const bits = this.#length * 8;
    const end = new Uint8Array(this.#held < 56 ? BLOCK - this.#held : 2 * BLOCK - this.#held);
    end[0] = 0x80;
    const view = new DataView(end.buffer);
    view.setUint32(end.length - 8, Math.floor(bits / 2 ** 32));
    view.setUint32(end.length - 4, bits >>> 0);
    this.update(end);
    return [...this.#state].map((word) => (word >>> 0).toString(16).padStart(8, "0")).join("");
  }

  #block(bytes: Uint8Array, at: number): void {
    const w = this.#words;
    const word = (index: number) => w[index] ?? 0;
    const view = new DataView(bytes.buffer, bytes.byteOffset + at, BLOCK);
    for (let i = 0; i < 16; i++) w[i] = view.getInt32(4 * i);
    for (let i = 16; i < 64; i++) {
      const early = word(i - 15);
      const late = word(i - 2);
      const s0 = rotateRight(early, 7) ^ rotateRight(early, 18) ^ (early >>> 3);
      const s1 = rotateRight(late, 17) ^ rotateRight(late, 19) ^ (late >>> 10);
      w[i] = word(i - 16) + s0 + word(i - 7) + s1;
    }
    let [a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0] = this.#state;
    for (let i = 0; i < 64; i++) {
      const s1 = rotateRight(e, 6) ^ rotateRight(e, 11) ^ rotateRight(e, 25);
      const one = (h + s1 + ((e & f) ^ (~e & g)) + (ROUNDS[i] ?? 0) + word(i)) | 0;
      const s0 = rotateRight(a, 2) ^ rotateRight(a, 13) ^ rotateRight(a, 22);
      const two = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + one) | 0, c, b, a, (one + two) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((value, index) => (this.#state[index] = (this.#state[index] ?? 0) + value));
  }
}
