import { Module } from '@nestjs/common';
import { TypeOrmModule } from '@nestjs/typeorm';
import { IntegrationOutboxEntity } from './integration-outbox.entity.js';
import { OrderEntity } from './order.entity.js';
import { OrdersService } from './orders.service.js';

@Module({
  imports: [
    TypeOrmModule.forRootAsync({
      useFactory: () => ({
        type: 'postgres' as const,
        url: process.env.DATABASE_URL,
        entities: [OrderEntity, IntegrationOutboxEntity],
        // TypeORM makes and changes the tables by itself, and drops columns and indexes that no entity
        // names. It leaves what Postroom adds alone: triggers, and a schema of its own.
        synchronize: true,
        retryAttempts: 1,
      }),
    }),
  ],
  providers: [OrdersService],
})
export class AppModule {}
