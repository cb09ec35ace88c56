/**
 * `chainbell openapi`: the description of the API, for generators and other tools.
 */
import type { Command } from 'commander';

export function addOpenApiCommand(program: Command): void {
  program
    .command('openapi')
    .description('print the description of the API (OpenAPI 3.1, JSON)')
    .action(async () => {
      const { renderOpenApi } = await import('../app/render-openapi.ts');
      process.stdout.write(await renderOpenApi());
    });
}
