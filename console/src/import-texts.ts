/**
 * The texts of the import of a CSV. They are apart from the others because only its dialog loads them.
 */
import { one } from './texts.ts';

export const importTexts = {
  title: 'Import addresses',
  note: 'One watched address for each line: address, webhook URL, and optionally watch_coin and watch_token. A line before them may name the columns.',
  twice:
    'Lines are not compared with the addresses that you watch already. A line that you import again is watched twice, and its receiver gets each transfer twice.',
  choose: 'Choose a file',
  drop: 'or drop a CSV here',
  paste: 'Or paste lines',
  example: '0x00000000000000000000000000000000000000a1,https://hooks.example.com/a',
  url: 'Webhook URL for lines without one',
  urlNote: 'Lines with a URL keep theirs.',
  found: (good: string, count: number, bad: string, badCount: number) =>
    `${good} ${one(count, 'line', 'lines')} can be sent${badCount === 0 ? '' : `, ${bad} can’t`}.`,
  start: (text: string, count: number) => (count === 0 ? 'Import' : `Import ${text}`),
  running: (done: string, total: string) => `${done} of ${total} lines are answered`,
  over: (created: string, refused: string, count: number) =>
    `${created} ${one(Number(created.replaceAll(',', '')), 'address is', 'addresses are')} watched${count === 0 ? '.' : `, ${refused} ${one(count, 'line was', 'lines were')} refused.`}`,
  refused: 'Lines that were refused',
  line: 'Line',
  text: 'Address',
  reason: 'Reason',
  shown: (shown: number, all: string) => `The first ${shown} of ${all}. `,
  copyReport: 'Copy the report as CSV',
  reportNote:
    'To send these lines, correct them in the report and import it. Its columns line and reason are ignored. Lines that repeated another one begin with # and are skipped until you remove it.',
  remove: 'Remove',
  tooLarge: (mebibytes: number) =>
    `The file has more than ${mebibytes} MiB. Split it, or send it to the API (docs: Register many addresses).`,
  notUtf8: 'The file is not UTF-8 text. Save it as CSV UTF-8.',
  noUrl: 'The line has no webhook URL, and there is no default.',
  badColumn: (name: string) =>
    `The first line names the column “${name}”. The columns are address, webhook_url, watch_coin and watch_token.`,
  badFlag: (name: string, text: string) => `${name} is “${text}”. Write true or false.`,
  skipped: 'The line begins with #, so it is skipped. To import it, remove the #.',
  doubledColumn: (name: string) => `The first line names the column “${name}” twice.`,
  repeated: (line: number) => `It watches the same as line ${line}. The receiver would get transfers twice.`,
  surplus: 'The line has too many cells. Put a URL that contains a comma or a semicolon in quotes.',
  unanswered: (text: string, count: number, line: string) =>
    `${text} ${one(count, 'line has', 'lines have')} no answer, from line ${line} on. Send them again: what is stored already is not stored twice.`,
  resend: 'Send the rest again',
};
