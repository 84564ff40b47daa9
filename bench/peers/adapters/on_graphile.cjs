// Graphile Worker: run() with its own reset of old locks, scanning more often.
const { makeWorkerUtils, run } = require('graphile-worker')
const meeting = require('./meeting.cjs')

const connectionString = process.env.PEER_DSN

async function main () {
  switch (process.argv[2]) {
    case 'install': {
      const tools = await makeWorkerUtils({ connectionString })
      await tools.migrate()
      await tools.release()
      meeting.answer({ version: meeting.version('graphile-worker') })
      break
    }
    case 'enqueue': {
      const tools = await makeWorkerUtils({ connectionString })
      await tools.addJob('hold', {}, { maxAttempts: 2 })
      await tools.release()
      meeting.answer({})
      break
    }
    case 'work': {
      const runner = await run({
        preset: {
          worker: {
            connectionString,
            concurrentJobs: 1,
            pollInterval: 200,
            minResetLockedInterval: 500,
            maxResetLockedInterval: 500
          }
        },
        taskList: { hold: meeting.handle }
      })
      await runner.promise
      break
    }
  }
}

main().catch((error) => {
  console.error(error)
  process.exitCode = 1
})
