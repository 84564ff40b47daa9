// pg-boss 12, in both ways to run jobs: work(), and fetch() with complete() by plain id (PEER_BY_ID=1).
const { setTimeout: pause } = require('node:timers/promises')
const { PgBoss } = require('pg-boss')
const meeting = require('./meeting.cjs')

const QUEUE = 'stale'

function untilTold () {
  return new Promise((resolve) => process.once('SIGTERM', resolve))
}

async function fetchOne (boss) {
  for (;;) {
    const [job] = await boss.fetch(QUEUE)
    if (job) return job
    await pause(100)
  }
}

async function byId (boss) {
  const job = await fetchOne(boss)
  try {
    const by = await meeting.handle()
    await boss.complete(QUEUE, job.id, { by })
  } catch (error) {
    await boss.fail(QUEUE, job.id, { message: error.message })
  }
}

async function main () {
  // Only B's process supervises, as any live instance does.
  const boss = new PgBoss({
    host: process.env.PGHOST,
    user: process.env.PGUSER,
    database: process.env.PGDATABASE,
    schedule: false,
    supervise: process.env.PEER_WHO === 'B',
    superviseIntervalSeconds: 1,
    monitorIntervalSeconds: 1
  })
  boss.on('error', (error) => console.error(error.message))
  await boss.start()
  switch (process.argv[2]) {
    case 'install':
      await boss.createQueue(QUEUE, { expireInSeconds: 4, retryLimit: 1 })
      meeting.answer({ version: meeting.version('pg-boss') })
      break
    case 'enqueue':
      await boss.send(QUEUE, {})
      meeting.answer({})
      break
    case 'work':
      if (process.env.PEER_BY_ID) {
        await byId(boss)
      } else {
        await boss.work(QUEUE, { pollingIntervalSeconds: 0.5 }, async () => ({ by: await meeting.handle() }))
        await untilTold()
      }
      break
  }
  await boss.stop({ graceful: true })
}

main().catch((error) => {
  console.error(error)
  process.exitCode = 1
})
