/**
 * Turns file system errors in the data folder into Faults that say where the problem is and what to do.
 */
import { Fault, messageOf } from '../../core/fault.ts';

type Cause = {
  /** Matches the messages of Node.js and PostgreSQL. */
  pattern: RegExp;
  /** PGlite throws file system errors with WASI error numbers; -1 if there is none. */
  wasiNumber: number;
  problem(folder: string): string;
  /** `unavailable` for a full disk, on which space can be freed. The other causes need another configuration. */
  code: 'unavailable' | 'invalid';
  /** PostgreSQL's code for the same problem. */
  sqlState: string;
};

const OTHER_FOLDER = 'or set dataDir to another folder';
const FULL = { code: 'unavailable', sqlState: '53100' } as const;
const UNUSABLE = { code: 'invalid', sqlState: '58030' } as const;
const CAUSES: readonly Cause[] = [
  {
    pattern: /ENOSPC|No space left on device/,
    wasiNumber: 51,
    problem: (folder) => `the disk with ${folder} is full. Free space on it, ${OTHER_FOLDER}`,
    ...FULL,
  },
  {
    pattern: /EDQUOT|Disk quota exceeded/,
    wasiNumber: 19,
    problem: (folder) => `the disk quota for ${folder} is used up. Free space or raise it, ${OTHER_FOLDER}`,
    ...FULL,
  },
  {
    pattern: /EROFS|Read-only file system/,
    wasiNumber: 69,
    problem: (folder) => `${folder} is on a read-only file system. Mount it writable, ${OTHER_FOLDER}`,
    ...UNUSABLE,
  },
  {
    pattern: /EACCES|EPERM|Permission denied/,
    wasiNumber: 2,
    problem: (folder) => `this user may not write to ${folder}. Change its owner or mode, ${OTHER_FOLDER}`,
    ...UNUSABLE,
  },
  {
    pattern: /ENOTDIR|EEXIST|Not a directory/,
    wasiNumber: 54,
    problem: (folder) => `${folder} is a file or lies below one, not a folder. Move it away, ${OTHER_FOLDER}`,
    ...UNUSABLE,
  },
  {
    pattern:
      /not a valid data directory|files are incompatible with server|invalid data in control file|could not read file "global\/|could not locate a valid checkpoint record|could not locate required checkpoint record/i,
    wasiNumber: -1,
    problem: (folder) =>
      `${folder} is damaged, or another version of PostgreSQL made it. Restore it from a backup, ${OTHER_FOLDER}`,
    code: 'invalid',
    sqlState: 'XX001',
  },
];

/**
 * Returns the result of `work`. @throws Fault `unavailable` if the disk of `folder` is full, `invalid` if it can't be written to
 * at all; any other error unchanged.
 */
export async function withFolderFaults<T>(folder: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw folderFault(error, folder);
  }
}

/** For a command that may not use the database of the service, because another user runs that. */
export const otherUserFault = (place: string) =>
  new Fault('invalid', `this user may not access ${place}. Run the command as the user who runs the service`);

export const isAccessDenied = (error: unknown): boolean =>
  error instanceof Error && 'code' in error && (error.code === 'EACCES' || error.code === 'EPERM');

function folderFault(error: unknown, folder: string): unknown {
  if (error instanceof Fault) return error;
  const text = error instanceof Error ? messageOf(error) : '';
  const wasiNumber = isErrno(error) ? error.errno : undefined;
  const found = CAUSES.find((cause) => cause.pattern.test(text) || cause.wasiNumber === wasiNumber);
  // PGlite sometimes throws values that are not an Error.
  const known =
    error instanceof Error ? error : new Error(`file system error ${wasiNumber ?? String(error)}`);
  if (found === undefined) return known;
  const { code, sqlState, problem } = found;
  return new Fault(code, problem(folder), { cause: Object.assign(known, { code: sqlState }) });
}

function isErrno(error: unknown): error is { errno: number } {
  return (
    typeof error === 'object' &&
    error !== null &&
    'name' in error &&
    error.name === 'ErrnoError' &&
    'errno' in error &&
    typeof error.errno === 'number'
  );
}
