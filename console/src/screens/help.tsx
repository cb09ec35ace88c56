/**
 * The keys that are shortcuts.
 */
import { chain, status } from '../api/chain.ts';
import { formatCount } from '../format/number.ts';
import { Dialog } from '../parts/dialog.tsx';
import { Check } from '../parts/fields.tsx';
import { hasShortcuts } from '../state/preferences.ts';
import { texts } from '../texts.ts';

export function Help({ onClose }: { onClose(): void }) {
  return (
    <Dialog title={texts.help.title} onClose={onClose}>
      <dl class="keys">
        {texts.help.keys.map(([key, meaning]) => (
          <>
            <dt key={key}>
              {key.split(' ').map((one) => (
                <kbd key={one}>{one}</kbd>
              ))}
            </dt>
            <dd>{meaning}</dd>
          </>
        ))}
      </dl>
      <SingleKeys />
      <p class="quiet">
        {texts.help.version(
          status.state.value.data?.version ?? '',
          formatCount(chain.state.value.data?.tokens.length ?? 0),
        )}
      </p>
    </Dialog>
  );
}

/** Whether single keys are shortcuts. */
export function SingleKeys() {
  return (
    <Check
      label={texts.help.single}
      note={texts.help.singleNote}
      value={hasShortcuts.value}
      onChange={(value) => {
        hasShortcuts.value = value;
      }}
    />
  );
}
