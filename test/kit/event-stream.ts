/**
 * A client of server-sent events that keeps what it has heard.
 */

export type EventStream = {
  status: number;
  headers: Headers;
  /** All events so far, oldest first. */
  events: { id: string; event: string; data: unknown }[];
  /** How many comments came. */
  commentCount(): number;
  /** Resolves when the server has ended the stream, in whatever way. */
  ended: Promise<void>;
  /** Hangs up. */
  [Symbol.asyncDispose](): Promise<void>;
};

/** Opens a stream; resolves when its beginning has come, or an answer that is none. */
export async function openEventStream(
  url: string,
  { key, lastEventId }: { key: string; lastEventId?: string },
): Promise<EventStream> {
  const hangUp = new AbortController();
  const response = await fetch(url, {
    headers: {
      authorization: `Bearer ${key}`,
      ...(lastEventId !== undefined && { 'last-event-id': lastEventId }),
    },
    signal: hangUp.signal,
  });
  const events: EventStream['events'] = [];
  let commentCount = 0;
  const read = async () => {
    let text = '';
    for await (const chunk of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
      text += chunk;
      const blocks = text.split('\n\n');
      text = blocks.pop() ?? '';
      for (const block of blocks) {
        if (block.startsWith(':')) commentCount += 1;
        const fields = Object.fromEntries(block.split('\n').map((line) => line.split(/: (.*)/s, 2)));
        const { id, event, data } = fields;
        if (data !== undefined) events.push({ id, event, data: JSON.parse(data) });
      }
    }
  };
  const ended = read().catch(() => {});
  return {
    status: response.status,
    headers: response.headers,
    events,
    commentCount: () => commentCount,
    ended,
    async [Symbol.asyncDispose]() {
      hangUp.abort();
      await ended;
    },
  };
}
