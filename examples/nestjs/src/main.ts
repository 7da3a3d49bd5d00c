import 'reflect-metadata';
import { randomUUID } from 'node:crypto';
import { NestFactory } from '@nestjs/core';
import { AppModule } from './app.module.js';
import { OrdersService } from './orders.service.js';

const app = await NestFactory.createApplicationContext(AppModule, { logger: ['error', 'warn'] });
const order = { id: randomUUID(), customer: process.argv[2] ?? 'ada', totalCents: 4200 };
const message = await app.get(OrdersService).place(order);
console.log(`order ${order.id} placed, message ${message.id} enqueued`);
await app.close();
