/**
 * Parses the YAML of configuration files: YAML 1.2 core without hexadecimal integers, with `${NAME}` allowed unquoted.
 */
import { type Document, type LineCounter, parseDocument, type Tags, type YAMLError } from 'yaml';
import { messageOf } from '../core/fault.ts';
import type { PointerProblem } from './problem.ts';

/**
 * Returns the document, or the problems of the text as YAML. Offsets refer to the text. `showVariables` restores
 * variables in scalars. The caller checks for duplicate keys, because it knows their paths.
 */
export function parseYaml(
  text: string,
  lineCounter: LineCounter,
): { document: Document.Parsed } | { problems: PointerProblem[] } {
  let document: Document.Parsed;
  try {
    const options = { lineCounter, prettyErrors: false, uniqueKeys: false, customTags: withoutHexIntegers };
    document = parseDocument(hideVariables(text), options);
  } catch (error) {
    return { problems: [{ pointer: '', message: `YAML: ${messageOf(error)}`, range: [0, 0] }] };
  }
  const errors = [...document.errors, ...document.warnings].sort((left, right) => left.pos[0] - right.pos[0]);
  if (errors.length === 0) return { document };
  const seenLines = new Set<number>();
  const distinct = errors.filter((error, index) => {
    // One mistake often makes several errors: only the first of a line counts, and once the parser has lost its way,
    // everything after it is "unexpected in the stream".
    const { line } = lineCounter.linePos(error.pos[0]);
    if (seenLines.has(line) || (index > 0 && error.message.includes('in YAML stream'))) return false;
    return seenLines.add(line);
  });
  // An error past the end of the text is shown at its last character.
  const last = Math.max(0, text.trimEnd().length - 1);
  return {
    problems: distinct.map((error) => ({
      pointer: '',
      ...explain(error),
      range: error.pos[0] > last ? [last, last + 1] : error.pos,
    })),
  };
}

// YAML would interpret the braces, commas and colons of `${NAME:-default}`. Characters of the private use area replace
// them during parsing. They have the same length, so all positions stay correct.
const SPECIAL = '{}[],:#';
const STAND_INS = '\uE000\uE001\uE002\uE003\uE004\uE005\uE006';

function hideVariables(text: string): string {
  return text.replaceAll(/\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}\n]*)?\}/g, (variable) =>
    variable.replaceAll(/[{}[\],:#]/g, (character) => STAND_INS.charAt(SPECIAL.indexOf(character))),
  );
}

/** A scalar's text with its variables as they were written. */
export function showVariables(text: string): string {
  return text.replaceAll(/[\uE000-\uE006]/g, (character) => SPECIAL.charAt(STAND_INS.indexOf(character)));
}

/** Keeps an unquoted 0x… as text, because YAML's core schema would turn an address into a rounded integer. */
function withoutHexIntegers(tags: Tags): Tags {
  const isHexOrOctal = (tag: Tags[number]) =>
    typeof tag !== 'string' &&
    tag.tag === 'tag:yaml.org,2002:int' &&
    'format' in tag &&
    tag.format !== undefined;
  return tags.filter((tag) => !isHexOrOctal(tag));
}

function explain(error: YAMLError): { message: string; suggestion?: string } {
  const message = `YAML: ${showVariables(error.message)}`;
  if (error.code === 'MULTIPLE_DOCS')
    return { message: 'YAML: it must be one document. Remove the second ---' };
  return error.code === 'TAB_AS_INDENT' ? { message, suggestion: 'indent with spaces' } : { message };
}
