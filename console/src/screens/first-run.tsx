/**
 * The overview of a watcher without watched addresses: four steps to the first delivery.
 */
import { useState } from 'preact/hooks';
import { chain, headOf, status } from '../api/chain.ts';
import { createCommand } from '../api/records.ts';
import { groupDigits } from '../format/amount.ts';
import { formatAge } from '../format/number.ts';
import { Icon } from '../parts/icon.tsx';
import { PageHead } from '../parts/page.tsx';
import { Command } from '../parts/values.tsx';
import { now } from '../state/clock.ts';
import { texts } from '../texts.ts';
import { AddressDialog } from './address-dialog.tsx';
import { ImportDialog } from './import-dialog.tsx';

export function FirstRun({ onCreated }: { onCreated(): void }) {
  const [open, setOpen] = useState<'new' | 'import' | undefined>(undefined);
  const head = headOf(status.state.value);
  const name = chain.state.value.data?.name ?? '';
  const steps = texts.firstRun;
  return (
    <>
      <PageHead title={steps.title} note={steps.note} />
      <ol class="steps">
        <li class={head === undefined ? 'is-now' : 'is-done'}>
          <Icon name={head === undefined ? 'hung' : 'delivered'} />
          <div>
            <h2>{head === undefined ? steps.connecting : steps.connected}</h2>
            <p>
              {head === undefined
                ? steps.noHead
                : steps.head(
                    name,
                    `#${groupDigits(String(head.number))}`,
                    formatAge(now.value - head.minedAt),
                  )}
            </p>
          </div>
        </li>
        <li class="is-now">
          <Icon name="hung" />
          <div>
            <h2>{steps.watch}</h2>
            <p>{steps.watchNote}</p>
            <Command text={createCommand()} />
            <div class="actions">
              <button type="button" class="button is-first" onClick={() => setOpen('new')}>
                {texts.addresses.create}
              </button>
              <button type="button" class="button" onClick={() => setOpen('import')}>
                {texts.addresses.import}
              </button>
            </div>
          </div>
        </li>
        <li>
          <Icon name="waiting" />
          <div>
            <h2>{steps.test}</h2>
            <p>{steps.testNote}</p>
          </div>
        </li>
        <li>
          <Icon name="waiting" />
          <div>
            <h2>{steps.see}</h2>
            <p>{steps.seeNote}</p>
          </div>
        </li>
      </ol>
      {open === 'new' && <AddressDialog onClose={() => setOpen(undefined)} onSaved={onCreated} />}
      {open === 'import' && <ImportDialog onClose={() => setOpen(undefined)} onChanged={onCreated} />}
    </>
  );
}
