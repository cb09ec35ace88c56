/**
 * Why a file can't be read, in words instead of the names of system errors.
 */
import { messageOf } from './fault.ts';

export const NO_FILE = 'there is no such file';

const REASONS: Record<string, string> = {
  ENOENT: NO_FILE,
  ENOTDIR: NO_FILE,
  EISDIR: 'it is a folder',
  EEXIST: 'it is a file',
  EACCES: 'this user may not read it',
  EPERM: 'this user may not read it',
  ELOOP: 'it is a link that leads to itself',
  ENAMETOOLONG: 'the name is too long',
};

/** The reason after "cannot be read: ". */
export function whyUnreadable(error: unknown): string {
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  return REASONS[code] ?? messageOf(error);
}
