/**
 * The operator's stream of delivery attempts, of all watchers or of one.
 */
import { Type } from 'typebox';
import type { Api, ApiOptions } from '../context.ts';
import { querySchema } from '../http/parameters.ts';
import { EventJson, eventJson } from '../notifications/attempt-events.ts';
import { type AttemptStreams, streamOperation, streamParameters } from '../notifications/attempt-stream.ts';
import { scopeOf, watcherParameter } from './scope.ts';

const WatcherEvent = Type.Object(
  { watcher_id: Type.Integer(), ...EventJson.properties },
  { title: 'AttemptEventOfWatcher' },
);
const operation = {
  ...streamOperation,
  summary: 'Stream the delivery attempts of all watchers',
  answer: { content: { 'text/event-stream': Type.String({ 'x-event-data': WatcherEvent }) } },
  example: 'id: 9001\nevent: attempt\ndata: {"watcher_id":7,"id":9001, …}\n\n',
  errors: { ...streamOperation.errors, 404: 'Watcher not found' },
};

export function addAdminStreamRoute(api: Api, options: ApiOptions, { open }: AttemptStreams): void {
  const schema = { querystring: querySchema({ ...watcherParameter, ...streamParameters }) };
  // A HEAD request would read the whole stream.
  api.get(
    '/api/admin/attempts/stream',
    { exposeHeadRoute: false, schema, config: { operation, isEndless: true } },
    async (request, reply) =>
      open(request, reply, {
        watcherId: await scopeOf(options, request.query),
        toJson: (event) => ({ watcher_id: event.watcherId, ...eventJson(event, options.nativeSymbol) }),
        check: () => scopeOf(options, request.query),
      }),
  );
}
