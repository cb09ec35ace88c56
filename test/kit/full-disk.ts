/**
 * A separate file system that a test fills.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

const MIB = 1024 * 1024;
/** The size of a new database, plus some space. */
const DISK_MIB = 128;
/** Less than PostgreSQL adds to a table at a time. */
const FREE_BYTES = 192 * 1024;

/** Undefined where this user may not mount file systems: everywhere except as root on Linux. */
export function mountDisk() {
  const folder = mkdtempSync(path.join(tmpdir(), 'chainbell-disk-'));
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${DISK_MIB}m,mode=0700`, 'tmpfs', folder], {
      stdio: 'ignore',
    });
  } catch {
    rmSync(folder, { recursive: true, force: true });
    return undefined;
  }
  const filler = path.join(folder, 'filler');
  return {
    folder,
    fill({ freeBytes = FREE_BYTES } = {}) {
      const { bavail, bsize } = statfsSync(folder);
      const bytes = bavail * bsize - freeBytes;
      if (bytes > DISK_MIB * MIB || bytes < 0) throw new Error(`the disk has ${bytes} bytes to fill`);
      writeFileSync(filler, Buffer.alloc(bytes));
    },
    free() {
      rmSync(filler, { force: true });
    },
    makeReadOnly() {
      execFileSync('mount', ['-o', 'remount,ro', folder]);
    },
    [Symbol.dispose]() {
      execFileSync('umount', ['--lazy', folder]);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
