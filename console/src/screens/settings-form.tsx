/**
 * The settings of a watched address: confirmations, direction, amounts, tokens, removal notices and order.
 */
import { useRef, useState } from 'preact/hooks';
import { assetOf, chain } from '../api/chain.ts';
import { ApiError, call } from '../api/client.ts';
import { useResource } from '../api/resource.ts';
import type { Settings } from '../api/types.ts';
import { formatAmount, parseAmount } from '../format/amount.ts';
import { shortAddress } from '../format/short.ts';
import { Check, SelectField, TextField } from '../parts/fields.tsx';
import { Loading } from '../parts/page.tsx';
import { Problem } from '../parts/problem.tsx';
import { announce } from '../state/announce.ts';
import { texts } from '../texts.ts';

type Draft = {
  confirmations: string;
  direction: Settings['direction'];
  minimum: string;
  tokens: string;
  removed: boolean;
  strict: boolean;
};

export function SettingsForm({ id }: { id: string }) {
  const title = useRef<HTMLHeadingElement>(null);
  const settings = useResource(`settings ${id}`, (signal) =>
    call('GET /api/notifications/watched-addresses/{id}/settings', { path: { id }, signal }),
  );
  return (
    <section aria-labelledby="settings">
      <div class="section-head">
        <h2 id="settings" tabIndex={-1} ref={title}>
          {texts.settings.title}
        </h2>
      </div>
      <Loading loaded={settings.state.value} reload={settings.reload} isLoadedOnce>
        {(data) => (
          // Amounts are shown and read in the units of the coin and the tokens.
          <Loading loaded={chain.state.value} reload={chain.reload}>
            {({ native_decimals: decimals, tokens }) => (
              <Form
                key={JSON.stringify([id, data, decimals, tokens])}
                id={id}
                settings={data}
                decimals={decimals}
                // The form starts again, without the button that has the focus.
                onSaved={() => void settings.reload().then(() => title.current?.focus())}
              />
            )}
          </Loading>
        )}
      </Loading>
    </section>
  );
}

function Form({
  id,
  settings,
  decimals,
  onSaved,
}: {
  id: string;
  settings: Settings;
  decimals: number;
  onSaved(): void;
}) {
  const native = chain.state.value.data?.native_symbol ?? '';
  const first = draftOf(settings, decimals);
  const [draft, setDraft] = useState<Draft>(first);
  const [error, setError] = useState<ApiError | undefined>(undefined);
  const put = (changes: Partial<Draft>) => {
    setDraft((present) => ({ ...present, ...changes }));
    setError(undefined);
  };
  const isChanged = JSON.stringify(draft) !== JSON.stringify(first);
  const minimum = parseAmount(draft.minimum === '' ? '0' : draft.minimum, decimals);
  const isWhole = /^\d+$/.test(draft.confirmations);
  const lines = draft.tokens.split('\n').filter((line) => line.trim() !== '');
  const tokens = lines.map(parseToken);
  const badLine = lines[tokens.indexOf(undefined)];
  const contracts = new Set(lines.map(contractOf).filter((one) => one !== undefined));
  const unknown = [...contracts].filter((one) => !assetOf(one).isKnown);

  const save = async () => {
    setError(undefined);
    try {
      const present = await call('GET /api/notifications/watched-addresses/{id}/settings', { path: { id } });
      if (JSON.stringify(present) !== JSON.stringify(settings))
        throw new ApiError(409, texts.settings.changedElsewhere);
      await call('PUT /api/notifications/watched-addresses/{id}/settings', {
        path: { id },
        body: {
          confirmations: Number(draft.confirmations),
          direction: draft.direction,
          min_amount: minimum ?? '0',
          tokens: tokens.filter((one) => one !== undefined),
          removed: draft.removed,
          strict_order: draft.strict,
        },
      });
      announce(texts.settings.saved);
      onSaved();
    } catch (failure) {
      if (!(failure instanceof ApiError)) throw failure;
      setError(failure);
    }
  };
  return (
    <form
      class="fields"
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
    >
      <div class="fields is-pair">
        <TextField
          label={texts.settings.confirmations}
          value={draft.confirmations}
          inputMode="numeric"
          onInput={(confirmations) => put({ confirmations })}
          note={texts.settings.confirmationsNote}
          problem={isWhole ? undefined : texts.settings.wholeNumber}
        />
        <SelectField
          label={texts.settings.direction}
          value={draft.direction}
          options={[
            ['both', texts.settings.directions.both],
            ['in', texts.settings.directions.in],
            ['out', texts.settings.directions.out],
          ]}
          onChange={(direction) =>
            put({ direction: direction === 'in' ? 'in' : direction === 'out' ? 'out' : 'both' })
          }
        />
      </div>
      <TextField
        label={texts.settings.minimum(native)}
        value={draft.minimum}
        inputMode="decimal"
        onInput={(value) => put({ minimum: value })}
        note={texts.settings.minimumNote}
        problem={minimum === undefined ? texts.settings.badMinimum(decimals) : undefined}
      />
      <div class="field">
        <label for="settings-tokens">{texts.settings.tokens}</label>
        <textarea
          id="settings-tokens"
          class="input"
          rows={3}
          spellcheck={false}
          value={draft.tokens}
          placeholder={texts.settings.tokensHint}
          aria-invalid={badLine !== undefined}
          aria-describedby="settings-tokens-note"
          onInput={(event) => put({ tokens: event.currentTarget.value })}
        />
        <div id="settings-tokens-note">
          <Problem text={badLine && texts.settings.badToken(badLine.trim())} />
          <p class="field-note">{texts.settings.tokensNote}</p>
          {unknown.length > 0 && (
            <p class="is-warn">{texts.settings.smallestUnits(unknown.map(shortAddress).join(', '))}</p>
          )}
        </div>
      </div>
      <Check
        label={texts.settings.removed}
        note={texts.settings.removedNote}
        value={draft.removed}
        onChange={(removed) => put({ removed })}
      />
      <Check
        label={texts.settings.strict}
        note={texts.settings.strictNote}
        value={draft.strict}
        onChange={(strict) => put({ strict })}
      />
      <Problem text={error?.whole} />
      <div>
        <button
          type="submit"
          class="button"
          disabled={!isChanged || minimum === undefined || !isWhole || badLine !== undefined}
        >
          {texts.save}
        </button>
      </div>
    </form>
  );
}

function draftOf(settings: Settings, decimals: number): Draft {
  return {
    confirmations: String(settings.confirmations),
    direction: settings.direction,
    minimum: formatAmount(settings.min_amount, decimals).replaceAll(',', ''),
    tokens: settings.tokens.map(tokenText).join('\n'),
    removed: settings.removed,
    strict: settings.strict_order,
  };
}

/** `0x… 1.5`: the contract and the least amount, in whole units if the decimals are known. */
function tokenText({ address, min_amount }: Settings['tokens'][number]): string {
  if (min_amount === '0') return address;
  return `${address} ${formatAmount(min_amount, assetOf(address).decimals ?? 0).replaceAll(',', '')}`;
}

function parseToken(line: string): Settings['tokens'][number] | undefined {
  const [, amount = '0', ...others] = line.trim().split(/\s+/);
  const address = contractOf(line);
  if (address === undefined || others.length > 0) return undefined;
  const least = parseAmount(amount, assetOf(address).decimals ?? 0);
  return least === undefined ? undefined : { address, min_amount: least };
}

/** The contract that a line begins with. It may be written without its prefix. */
function contractOf(line: string): string | undefined {
  const [, digits] = /^\s*(?:0x)?([0-9a-f]{40})(?!\S)/i.exec(line) ?? [];
  return digits === undefined ? undefined : `0x${digits}`;
}
