/**
 * The YAML of configuration files: YAML 1.2 core without hexadecimal integers, and `${NAME}` unquoted anywhere.
 */
import { type Document, type LineCounter, parseDocument, type Tags, type YAMLError } from 'yaml';
import { messageOf } from '../core/fault.ts';
import type { Finding } from './finding.ts';

/**
 * The document, or what is wrong with the text as YAML. Offsets are those of the text; variables in scalars
 * are hidden until `showVariables`. Keys that are given twice are left to the reader, who knows their paths.
 */
export function parseYaml(
  text: string,
  lineCounter: LineCounter,
): { document: Document.Parsed } | { findings: Finding[] } {
  let document: Document.Parsed;
  try {
    const options = { lineCounter, prettyErrors: false, uniqueKeys: false, customTags: withoutHexIntegers };
    document = parseDocument(hideVariables(text), options);
  } catch (error) {
    return { findings: [{ pointer: '', message: `YAML: ${messageOf(error)}`, range: [0, 0] }] };
  }
  const errors = [...document.errors, ...document.warnings].sort((left, right) => left.pos[0] - right.pos[0]);
  if (errors.length === 0) return { document };
  const seenLines = new Set<number>();
  const telling = errors.filter((error, index) => {
    // One mistake often makes several errors: only the first of a line counts, and once the parser has lost its way,
    // everything after it is "unexpected in the stream".
    const { line } = lineCounter.linePos(error.pos[0]);
    if (seenLines.has(line) || (index > 0 && error.message.includes('in YAML stream'))) return false;
    return seenLines.add(line);
  });
  // What is missing at the end is shown at the last character that is there.
  const last = Math.max(0, text.trimEnd().length - 1);
  return {
    findings: telling.map((error) => ({
      pointer: '',
      ...explain(error),
      range: error.pos[0] > last ? [last, last + 1] : error.pos,
    })),
  };
}

// Braces, commas and colons of `${NAME:-default}` mean something else to YAML. While it parses, characters of the
// private use area stand in for them; they are as long, so that every position stays true.
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

/** An unquoted 0x… stays text: as an integer of YAML's core schema, an address would lose most of its digits. */
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
    return { message: 'YAML: the file must hold one document: remove the second ---' };
  return error.code === 'TAB_AS_INDENT' ? { message, suggestion: 'indent with spaces' } : { message };
}
