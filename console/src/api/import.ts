/**
 * Watched addresses from the lines of a CSV, created by the bulk stream. Requests are of at most 5,000 lines, which is what a client may send
 * before it reads the answers.
 */
import type { ImportLine, RefusedLine } from '../format/csv.ts';
import { texts } from '../texts.ts';
import { ApiError, holdSession, type Problem, randomName, send, sentenceOf } from './client.ts';

export type ImportReport = {
  /** Lines that have an answer. */
  done: number;
  refused: RefusedLine[];
  isOver: boolean;
  error?: string;
};

const LINES_AT_ONCE = 5_000;

type Group = { lines: readonly ImportLine[]; key: string };

/**
 * An import of these lines. The returned function sends those without an answer and calls `show` with each answer. It resolves when
 * all are answered, or the signal has stopped it. Calling it again repeats the broken request with its idempotency key.
 */
export function createImport(
  lines: readonly ImportLine[],
): (show: (report: ImportReport) => void, signal: AbortSignal) => Promise<void> {
  const groups: Group[] = [];
  for (let from = 0; from < lines.length; from += LINES_AT_ONCE)
    groups.push({ lines: lines.slice(from, from + LINES_AT_ONCE), key: randomName() });
  /** Of the groups that are answered. */
  let answered: Pick<ImportReport, 'done' | 'refused'> = { done: 0, refused: [] };
  let next = 0;
  const checkSession = holdSession();
  return async (show, signal) => {
    const report: ImportReport = { done: answered.done, refused: [...answered.refused], isOver: false };
    const update = () => show({ ...report, refused: [...report.refused] });
    update();
    try {
      for (; next < groups.length && !signal.aborted; next += 1) {
        checkSession();
        await importGroup(groups[next] as Group, report, update, signal);
        answered = { done: report.done, refused: [...report.refused] };
      }
    } catch (error) {
      if (!signal.aborted)
        report.error = error instanceof ApiError ? error.message : texts.errors.unreachable;
    }
    report.isOver = true;
    update();
  };
}

async function importGroup(
  { lines: group, key }: Group,
  report: ImportReport,
  update: () => void,
  signal: AbortSignal,
): Promise<void> {
  const body = group.map((one) => `${JSON.stringify(one.body)}\n`).join('');
  const headers = { 'content-type': 'application/x-ndjson', 'idempotency-key': key };
  const response = await send(
    'POST /api/notifications/watched-addresses/bulk',
    { body: body as never, headers, signal },
    null,
  );
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let pending = '';
  const answeredBefore = report.done;
  for (;;) {
    const { done, value = '' } = (await reader?.read()) ?? { done: true };
    pending += value;
    const answers = pending.split('\n');
    pending = answers.pop() ?? '';
    for (const text of answers) note(text, group, report);
    update();
    if (!done) continue;
    // A proxy may end an answer that broke off as if it were complete.
    if (report.done - answeredBefore < group.length) throw new ApiError(0, texts.errors.unreachable);
    return;
  }
}

function note(text: string, group: readonly ImportLine[], report: ImportReport): void {
  if (text === '') return;
  const answer: { index?: number; success: boolean; statusMessage?: string; errors?: Problem[] } =
    JSON.parse(text);
  if (answer.index === undefined) throw new ApiError(0, answer.statusMessage ?? '');
  report.done += 1;
  const line = group[answer.index];
  if (answer.success || line === undefined) return;
  const reasons = answer.errors?.map(sentenceOf) ?? [];
  report.refused.push({
    ...{ line: line.line, text: line.text, cells: line.cells },
    message: reasons.length === 0 ? (answer.statusMessage ?? '') : reasons.join('; '),
  });
}
