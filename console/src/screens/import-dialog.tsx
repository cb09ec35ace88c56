/**
 * Creates thousands of watched addresses from a CSV: pasted or dropped, checked here for its form, sent as one stream of lines,
 * and reported line by line.
 */
import type { ComponentChildren } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { createImport, type ImportReport } from '../api/import.ts';
import { type ImportLine, parseCsv, type RefusedLine, reportOf } from '../format/csv.ts';
import { formatCount } from '../format/number.ts';
import { importTexts } from '../import-texts.ts';
import { Dialog } from '../parts/dialog.tsx';
import { TextField } from '../parts/fields.tsx';
import { Icon } from '../parts/icon.tsx';
import { Problem } from '../parts/problem.tsx';
import { Table } from '../parts/table.tsx';
import { Copy } from '../parts/values.tsx';
import { texts } from '../texts.ts';

const REFUSED_SHOWN_MAX = 100;
/** Some 150,000 lines. */
const FILE_BYTES_MAX = 16 * 2 ** 20;
/** Reading a CSV of this size takes so long that it waits for a pause in typing. */
const LARGE_CHARACTERS = 500_000;
const PAUSE_MS = 700;

export function ImportDialog({ onClose, onChanged }: { onClose(): void; onChanged(): void }) {
  const [text, setText] = useState('');
  const [url, setUrl] = useState('');
  const [isOver, setOver] = useState(false);
  const [report, setReport] = useState<ImportReport | undefined>(undefined);
  const abort = useRef<AbortController | undefined>(undefined);
  const run = useRef<ReturnType<typeof createImport> | undefined>(undefined);
  const [file, setFile] = useState<{ name: string; text: string } | undefined>(undefined);
  const [fileProblem, setFileProblem] = useState<string | undefined>(undefined);
  const csv = file?.text ?? text;
  const settledUrl = useSettled(url.trim(), csv.length > LARGE_CHARACTERS);
  const isSettled = settledUrl === url.trim();
  const { lines, problems, columns } = useMemo(() => parseCsv(csv, settledUrl), [csv, settledUrl]);
  const isRunning = report !== undefined && !report.isOver;
  /** What is stored is known only here, so that a wrong key doesn't end it. */
  const isUnfinished = report !== undefined && report.done < lines.length;

  // The page may be left by other ways than the dialog's buttons.
  useEffect(() => () => abort.current?.abort(), []);
  const start = async () => {
    const own = new AbortController();
    abort.current = own;
    run.current ??= createImport(lines);
    await run.current(setReport, own.signal);
    onChanged();
  };
  const take = async (files: FileList | null | undefined) => {
    const taken = files?.[0];
    if (taken === undefined) return;
    setFile(undefined);
    setFileProblem(taken.size > FILE_BYTES_MAX ? importTexts.tooLarge(FILE_BYTES_MAX / 2 ** 20) : undefined);
    if (taken.size > FILE_BYTES_MAX) return;
    try {
      const bytes = await taken.arrayBuffer();
      setFile({ name: taken.name, text: new TextDecoder('utf-8', { fatal: true }).decode(bytes) });
    } catch {
      setFileProblem(importTexts.notUtf8);
    }
  };

  return (
    <Dialog
      title={importTexts.title}
      isWide
      isKept={isUnfinished}
      onClose={() => {
        abort.current?.abort();
        if (!isRunning) onClose();
      }}
      onSubmit={() => void start()}
    >
      {report === undefined ? (
        <>
          <p class="prose second">
            {importTexts.note} {importTexts.twice}
          </p>
          {/* biome-ignore lint/a11y/noStaticElementInteractions: the button in it does the same */}
          <div
            class={isOver ? 'drop is-over' : 'drop'}
            onDragOver={(event) => {
              event.preventDefault();
              setOver(true);
            }}
            onDragLeave={() => setOver(false)}
            onDrop={(event) => {
              event.preventDefault();
              setOver(false);
              void take(event.dataTransfer?.files);
            }}
          >
            <label class="button">
              <Icon name="upload" />
              {importTexts.choose}
              <input
                type="file"
                class="hidden"
                accept=".csv,.txt,text/csv,text/plain"
                onChange={({ currentTarget }) => {
                  void take(currentTarget.files);
                  // Otherwise the same file, corrected, could not be chosen again.
                  currentTarget.value = '';
                }}
              />
            </label>
            {importTexts.drop}
          </div>
          <Problem text={fileProblem} />
          {file !== undefined && (
            <p class="below">
              {file.name}{' '}
              <button type="button" class="button is-small" onClick={() => setFile(undefined)}>
                {importTexts.remove}
              </button>
            </p>
          )}
          {/* A browser takes seconds to show a large text in a field, so the text of a file isn't shown. */}
          <div class="field" hidden={file !== undefined}>
            <label for="import-text">{importTexts.paste}</label>
            <textarea
              id="import-text"
              class="input"
              rows={8}
              spellcheck={false}
              value={text}
              placeholder={importTexts.example}
              onInput={(event) => setText(event.currentTarget.value)}
            />
          </div>
          <TextField
            label={importTexts.url}
            value={url}
            onInput={setUrl}
            placeholder="https://hooks.example.com/deposits"
            note={importTexts.urlNote}
          />
          {csv !== '' && (
            <p class={problems.length > 0 ? 'is-warn' : 'second'} role="status">
              {importTexts.found(
                formatCount(lines.length),
                lines.length,
                formatCount(problems.length),
                problems.length,
              )}
            </p>
          )}
          <Refused rows={problems} columns={columns} />
        </>
      ) : (
        <Report {...{ report, lines, problems, columns }} />
      )}
      <footer>
        {isRunning && (
          <button type="button" class="button" onClick={() => abort.current?.abort()}>
            {texts.redeliver.stop}
          </button>
        )}
        {!isRunning && (
          <button type="button" class="button" onClick={onClose}>
            {report === undefined ? texts.cancel : texts.close}
          </button>
        )}
        {report?.isOver === true && report.done < lines.length && (
          <button type="submit" class="button is-first">
            {importTexts.resend}
          </button>
        )}
        {report === undefined && (
          <button type="submit" class="button is-first" disabled={lines.length === 0 || !isSettled}>
            {importTexts.start(formatCount(lines.length), lines.length)}
          </button>
        )}
      </footer>
    </Dialog>
  );
}

/** A value while it is typed, or with `waits`, as it was after the last pause. */
function useSettled(value: string, waits: boolean): string {
  const [settled, settle] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => settle(value), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [value]);
  return waits ? settled : value;
}

function Report({
  report,
  lines,
  problems,
  columns,
}: {
  report: ImportReport;
  lines: readonly ImportLine[];
  /** Lines that weren't sent. */
  problems: readonly RefusedLine[];
  columns: readonly string[];
}) {
  const { done, isOver, error } = report;
  const refused = [...problems, ...report.refused].sort((one, other) => one.line - other.line);
  const { length: total } = lines;
  const unanswered = lines[done];
  return (
    <>
      <div role="status">
        <progress max={Math.max(1, total)} value={done} aria-label={importTexts.title} />
        <p>
          {isOver
            ? importTexts.over(
                formatCount(done - report.refused.length),
                formatCount(refused.length),
                refused.length,
              )
            : importTexts.running(formatCount(done), formatCount(total))}
        </p>
      </div>
      <Problem text={error} />
      {isOver && unanswered !== undefined && (
        <p class="is-warn" role="status">
          {importTexts.unanswered(formatCount(total - done), total - done, formatCount(unanswered.line))}
        </p>
      )}
      <Refused rows={refused} columns={columns}>
        {isOver && <p class="below">{importTexts.reportNote}</p>}
      </Refused>
    </>
  );
}

function Refused({
  rows,
  columns,
  children,
}: {
  rows: readonly RefusedLine[];
  columns: readonly string[];
  children?: ComponentChildren;
}) {
  if (rows.length === 0) return null;
  return (
    <>
      <Table caption={importTexts.refused}>
        <thead>
          <tr>
            <th class="right">{importTexts.line}</th>
            <th>{importTexts.text}</th>
            <th>{importTexts.reason}</th>
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, REFUSED_SHOWN_MAX).map(({ line, text, message }) => (
            <tr key={line}>
              <td class="right">{line}</td>
              <td class="mono is-given">{text.slice(0, 48)}</td>
              <td class="wraps">{message}</td>
            </tr>
          ))}
        </tbody>
      </Table>
      <p class="below">
        {rows.length > REFUSED_SHOWN_MAX && importTexts.shown(REFUSED_SHOWN_MAX, formatCount(rows.length))}
        <Copy text={() => reportOf(rows, columns)} label={importTexts.copyReport}>
          {importTexts.copyReport}
        </Copy>
      </p>
      {children}
    </>
  );
}
