// pg-boss 12: send, fetch, complete and fail, its interface for workers that hold a job by themselves.
const { setTimeout: pause } = require('node:timers/promises')
const { PgBoss } = require('pg-boss')
const meeting = require('./meeting.cjs')

const QUEUE = 'stale'

async function work (boss) {
  let jobs = []
  while (jobs.length === 0) {
    jobs = await boss.fetch(QUEUE)
    if (jobs.length === 0) await pause(100)
  }
  try {
    const by = await meeting.handle()
    await boss.complete(QUEUE, jobs[0].id, { by })
  } catch (error) {
    await boss.fail(QUEUE, jobs[0].id, { message: error.message })
  }
}

async function main () {
  // Only B's process supervises, as any live instance does.
  const supervise = process.env.PEER_WHO === 'B'
  const boss = new PgBoss({
    host: process.env.PGHOST,
    user: process.env.PGUSER,
    database: process.env.PGDATABASE,
    schedule: false,
    supervise,
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
      await work(boss)
      break
  }
  await boss.stop({ graceful: true })
}

main().catch((error) => {
  console.error(error)
  process.exitCode = 1
})
