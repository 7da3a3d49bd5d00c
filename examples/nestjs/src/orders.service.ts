import { Injectable } from '@nestjs/common';
import { DataSource } from 'typeorm';
import { IntegrationOutboxEntity } from './integration-outbox.entity.js';
import { OrderEntity } from './order.entity.js';

export interface NewOrder {
  id: string;
  customer: string;
  totalCents: number;
}

@Injectable()
export class OrdersService {
  constructor(private readonly dataSource: DataSource) {}

  /** Writes the order and its message in one transaction: both, or neither. Returns the message. */
  place(order: NewOrder): Promise<IntegrationOutboxEntity> {
    return this.dataSource.transaction(async manager => {
      await manager.insert(OrderEntity, order);
      const outbox = manager.getRepository(IntegrationOutboxEntity);
      return outbox.save(
        outbox.create({
          sourceStreamId: `order-${order.id}`,
          sourceEventId: `order-placed-${order.id}`,
          integrationType: 'webhook:fulfilment',
          eventType: 'order.placed.v1',
          payload: { orderId: order.id, customer: order.customer, totalCents: order.totalCents },
        }),
      );
    });
  }
}
