/**
 * No change of watched addresses may be forgotten by the address filter and the counts.
 */
import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const SOURCE = fileURLToPath(new URL('../../../src', import.meta.url));
const CHANGE = /\b(?:insert into|delete from|update) watched_address\b/g;
/** Updates that set neither the address nor the lane. */
const UNNOTED = new Map([
  ['store/watchers/settings.ts', 1],
  ['store/watchers/watched-set.ts', 1],
]);

test('each statement that changes watched addresses is followed by one that notes the change', () => {
  const files = globSync('**/*.ts', { cwd: SOURCE });
  const changing = files.flatMap((file) => {
    const text = readFileSync(path.join(SOURCE, file), 'utf8');
    const changes = text.match(CHANGE)?.length ?? 0;
    const notes = text.match(/await note(?:Changes|Deletions)\(/g)?.length ?? 0;
    return changes === 0 ? [] : [{ file, missing: changes - notes }];
  });
  assert.ok(changing.length > 1);
  for (const { file, missing } of changing) assert.equal(missing, UNNOTED.get(file) ?? 0, file);
});
