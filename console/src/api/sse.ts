/**
 * Reads server-sent events from a stream of text (WHATWG HTML, section 9.2), as far as Chainbell sends them.
 */
type ServerEvent = { id: string | undefined; type: string; data: string };

/** Characters without the end of an event. An event has at most about 10 KiB. */
const PENDING_CHARACTERS_MAX = 1_048_576;

/**
 * A function that takes pieces of the stream and returns the events that they complete. A comment is an event of type `''`, which
 * shows that the connection is alive.
 */
export function createEventReader(): (piece: string) => ServerEvent[] {
  let pending = '';
  return (piece) => {
    // A piece may have thousands of events.
    const blocks = (pending + piece.replaceAll('\r', '')).split('\n\n');
    pending = blocks.pop() ?? '';
    if (pending.length > PENDING_CHARACTERS_MAX) throw new Error('an event is too long');
    return blocks.filter((block) => block !== '').map(parseEvent);
  };
}

function parseEvent(block: string): ServerEvent {
  let id: string | undefined;
  let type = '';
  const data: string[] = [];
  for (const line of block.split('\n')) {
    const [, name = '', value = ''] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
    if (name === 'id') id = value;
    if (name === 'event') type = value;
    if (name === 'data') data.push(value);
  }
  return { id, type, data: data.join('\n') };
}
