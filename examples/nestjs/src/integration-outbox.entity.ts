import { Column, CreateDateColumn, Entity, Index, PrimaryGeneratedColumn, UpdateDateColumn } from 'typeorm';

export enum OutboxStatus {
  PENDING = 'PENDING',
  CLAIMED = 'CLAIMED',
  SENT = 'SENT',
  FAILED = 'FAILED',
  DEAD = 'DEAD',
}

/** The outbox as the application has had it all along. */
@Entity({ name: 'integration_outbox', schema: 'core_outbox' })
@Index(['dueAt', 'status'])
@Index(['status'])
@Index(['sourceStreamId', 'sourceEventId'], { unique: true })
export class IntegrationOutboxEntity {
  @PrimaryGeneratedColumn('uuid') id!: string;

  @Column({ type: 'varchar', length: 200 }) sourceStreamId!: string;
  @Column({ type: 'varchar', length: 100 }) sourceEventId!: string;

  @Column({ type: 'varchar', length: 120 }) integrationType!: string;
  @Column({ type: 'varchar', length: 120 }) eventType!: string;

  @Column({ type: 'jsonb' }) payload!: Record<string, any>;
  @Column({ type: 'jsonb', nullable: true }) headers?: Record<string, any>;

  @Column({ type: 'varchar', length: 60, nullable: true }) tenantId?: string;
  @Column({ type: 'varchar', length: 60, nullable: true }) userId?: string;
  @Column({ type: 'varchar', length: 120, nullable: true }) correlationId?: string;

  @Column({ type: 'timestamp with time zone', default: () => 'now()' }) dueAt!: Date;
  @Column({ type: 'int', default: 0 }) attempts!: number;
  @Column({ type: 'int', default: 10 }) maxAttempts!: number;

  @Column({ type: 'varchar', length: 20, default: OutboxStatus.PENDING }) status!: OutboxStatus;
  @Column({ type: 'timestamp with time zone', nullable: true }) lockedAt?: Date;
  @Column({ type: 'varchar', length: 120, nullable: true }) lockedBy?: string;

  @CreateDateColumn() createdAt!: Date;
  @UpdateDateColumn() updatedAt!: Date;
  @Column({ type: 'timestamp with time zone', nullable: true }) sentAt?: Date;
  @Column({ type: 'text', nullable: true }) lastError?: string;
}
