// JSON that is taken apart without being read: a 64-bit number survives it, but not `JSON.parse`.

/** Whether `JSON.parse` loses nothing of `text`: no number in it has more than fifteen digits. */
export function isExact(text: string): boolean {
  const numbers = text.replaceAll(/"(?:[^"\\]|\\.)*"/g, '""');
  return !/\d{16}/.test(numbers);
}

/** The members of a JSON object, each as the text it stands there with. `text` must be a JSON object. */
export function members(text: string): Map<string, string> {
  const found = new Map<string, string>();
  const tokens = /"(?:[^"\\]|\\.)*"|[{}[\],:]/g;
  let [depth, key, from] = [0, '', -1];
  for (let token = tokens.exec(text); token; token = tokens.exec(text)) {
    const [part] = token;
    const ends = depth === 1 && (part === ',' || part === '}') && from >= 0;
    if (ends) {
      found.set(key, text.slice(from, token.index).trim());
      from = -1;
    }
    if (part === '{' || part === '[') depth += 1;
    else if (part === '}' || part === ']') depth -= 1;
    else if (depth === 1 && part === ':' && from < 0) from = tokens.lastIndex;
    else if (depth === 1 && part.startsWith('"') && from < 0) key = JSON.parse(part) as string;
  }
  return found;
}
