// What both Node adapters share: where the workers meet, and the line of JSON that answers the command.
const fs = require('node:fs')
const path = require('node:path')
const { setTimeout: pause } = require('node:timers/promises')

const folder = process.env.PEER_FOLDER
const who = process.env.PEER_WHO
const file = (word) => path.join(folder, `${who}.${word}`)

exports.answer = (facts) => process.stdout.write(JSON.stringify(facts) + '\n')

exports.version = (name) => {
  const place = path.join(process.env.NODE_PATH, name, 'package.json')
  return JSON.parse(fs.readFileSync(place, 'utf8')).version
}

// The body of a handler: A succeeds, B fails.
exports.handle = async () => {
  fs.writeFileSync(file('started'), '')
  while (!fs.existsSync(file('go'))) await pause(20)
  fs.writeFileSync(file('returning'), '')
  if (who === 'B') throw new Error('B failed')
  return who
}
