/**
 * The watched addresses of a watcher: search, pages, and the dialogs that create and import.
 */
import { useState } from 'preact/hooks';
import { useLocation } from 'preact-iso';
import { callPage } from '../api/client.ts';
import { createCommand } from '../api/records.ts';
import { SLOW_MS, useResource } from '../api/resource.ts';
import type { WatchedAddress } from '../api/types.ts';
import { withoutScheme } from '../format/short.ts';
import { AddressSearch } from '../parts/address-search.tsx';
import { Icon } from '../parts/icon.tsx';
import { CopyCurl, Empty, Loading, PageHead, PageLinks, usePageQuery } from '../parts/page.tsx';
import { Lines, LinkRow, Table } from '../parts/table.tsx';
import { Address, Command, Copy, Time } from '../parts/values.tsx';
import { WatcherNeeded } from '../parts/watcher-choice.tsx';
import { zone } from '../state/preferences.ts';
import { isSmall } from '../state/screen.ts';
import { showsAll } from '../state/session.ts';
import { useShortcut } from '../state/shortcuts.ts';
import { texts } from '../texts.ts';
import { AddressDialog } from './address-dialog.tsx';
import { ImportDialog } from './import-dialog.tsx';

const PAGE_ROWS = '50';

export function Addresses() {
  return showsAll.value ? <WatcherNeeded title={texts.addresses.title} /> : <Records />;
}

function Records() {
  const { query, change } = usePageQuery();
  const { route } = useLocation();
  const [open, setOpen] = useState<'new' | 'import' | undefined>(undefined);
  const options = { query: { limit: PAGE_ROWS, cursor: query.cursor, address: query.address } };
  const page = useResource(
    `addresses ${query.cursor ?? ''} ${query.address ?? ''}`,
    (signal) => callPage('GET /api/notifications/watched-addresses', { ...options, signal }),
    { everyMs: SLOW_MS },
  );
  useShortcut('n', () => setOpen('new'));
  return (
    <>
      <PageHead title={texts.addresses.title} note={texts.addresses.note}>
        <CopyCurl operation="GET /api/notifications/watched-addresses" options={options} />
        <button type="button" class="button" onClick={() => setOpen('import')}>
          <Icon name="upload" />
          {texts.addresses.import}
        </button>
        <button type="button" class="button is-first" onClick={() => setOpen('new')}>
          {texts.addresses.create}
        </button>
      </PageHead>
      <AddressSearch
        label={texts.addresses.searchHint}
        value={query.address ?? ''}
        onSearch={(address) => change({ address, cursor: undefined })}
      />
      <Loading loaded={page.state.value} reload={page.reload}>
        {({ data: records, next }) => (
          <>
            {records.length === 0 ? (
              <Empty text={query.address === undefined ? texts.addresses.none : texts.addresses.noMatch}>
                {query.address === undefined && <Command text={createCommand()} />}
                <div class="actions">
                  <button type="button" class="button is-first" onClick={() => setOpen('new')}>
                    {texts.addresses.create}
                  </button>
                </div>
              </Empty>
            ) : (
              <RecordTable records={records} />
            )}
            <PageLinks next={next} />
          </>
        )}
      </Loading>
      {open === 'new' && (
        <AddressDialog
          onClose={() => setOpen(undefined)}
          onSaved={(record) => route(`/console/addresses/${record.id}`)}
        />
      )}
      {open === 'import' && (
        <ImportDialog onClose={() => setOpen(undefined)} onChanged={() => void page.reload()} />
      )}
    </>
  );
}

function RecordTable({ records }: { records: readonly WatchedAddress[] }) {
  if (isSmall.value)
    return (
      <Lines>
        {records.map((record) => (
          <li key={record.id}>
            <a class="row-link" href={`/console/addresses/${record.id}`}>
              <Icon name="addresses" />
              <Address value={record.address} isLong isOwn />
              <Time at={record.created_at} />
              <span class="below-line">
                <span title={record.webhook_url}>{withoutScheme(record.webhook_url)}</span>
                <span>{texts.addresses.kinds(record.watch_coin, record.watch_token)}</span>
              </span>
            </a>
          </li>
        ))}
      </Lines>
    );
  return (
    <Table caption={texts.addresses.caption}>
      <thead>
        <tr>
          <th>{texts.addresses.address}</th>
          <th>{texts.addresses.watches}</th>
          <th>{texts.addresses.url}</th>
          <th class="right third-rank">{texts.addresses.created(texts.zones[zone.value])}</th>
        </tr>
      </thead>
      <tbody>
        {records.map((record) => (
          <LinkRow key={record.id}>
            <th scope="row">
              <a class="row-link" href={`/console/addresses/${record.id}`}>
                <Address value={record.address} isLong isOwn />
              </a>{' '}
              <Copy text={record.address} label={texts.addresses.copy} />
            </th>
            <td class="second">{texts.addresses.kinds(record.watch_coin, record.watch_token)}</td>
            <td class="second long" title={record.webhook_url}>
              {withoutScheme(record.webhook_url)}
            </td>
            <td class="right quiet third-rank">
              <Time at={record.created_at} />
            </td>
          </LinkRow>
        ))}
      </tbody>
    </Table>
  );
}
