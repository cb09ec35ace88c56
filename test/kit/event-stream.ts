/**
 * A client of server-sent events that keeps all received events.
 */

export type EventStream = {
  status: number;
  headers: Headers;
  /** All events so far, oldest first. */
  events: { id: string; event: string; data: unknown }[];
  /** The number of received comments. */
  commentCount(): number;
  /** Resolves when the stream has ended, for any reason. */
  ended: Promise<void>;
  /** Closes the connection. */
  [Symbol.asyncDispose](): Promise<void>;
};

/** Opens a stream. Resolves when the stream has started, or when the response is not a stream. */
export async function openEventStream(
  url: string,
  { key, lastEventId, headers }: { key: string; lastEventId?: string; headers?: Record<string, string> },
): Promise<EventStream> {
  const hangUp = new AbortController();
  const response = await fetch(url, {
    headers: {
      authorization: `Bearer ${key}`,
      ...(lastEventId !== undefined && { 'last-event-id': lastEventId }),
      ...headers,
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
