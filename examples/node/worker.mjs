// worker.mjs [MILLISECONDS]: Answers URLs such as upper:hello, with HELLO. Each job takes MILLISECONDS.

import { Worker, run, usage } from './earshot.mjs'

const SLOTS = 4

const [delay = '0', ...more] = process.argv.slice(2)
if (!/^\d{1,7}$/.test(delay) || more.length) usage('worker.mjs [MILLISECONDS]')

await run(async worker => {
  const jobs = new Map() // timers by attempt
  let leaving = false, left

  function leave() {
    leaving = true
    if (!jobs.size) left()
  }

  function end(attempt, answer) {
    clearTimeout(jobs.get(attempt))
    jobs.delete(attempt)
    answer()
    if (leaving) leave()
  }

  function begin(attempt, url) {
    const text = url.slice(url.indexOf(':') + 1)
    if (leaving || jobs.size === SLOTS) return worker.failed(attempt, 'worker-lost', 'no room')
    if (!text) return worker.failed(attempt, 'worker-failed', 'no text follows upper:')
    const finish = () => end(attempt, () => worker.done(attempt, 'text/plain', text.toUpperCase()))
    jobs.set(attempt, setTimeout(finish, Number(delay)))
  }

  async function serve() {
    for await (const { verb, operands: [attempt, url] } of worker) {
      if (verb === 'JOB') begin(attempt, url)
      // A cancellation of a job that has ended is ignored.
      else if (verb === 'CANCEL' && jobs.has(attempt))
        end(attempt, () => worker.failed(attempt, 'cancelled', 'the broker cancelled the job'))
      else if (verb === 'PING') worker.pong()
      else if (verb === 'DRAIN') leave()
    }
  }

  const isLeft = new Promise(resolve => { left = resolve })
  process.once('SIGTERM', leave)
  console.error('earshot: serving upper:')
  await Promise.race([serve(), isLeft])
  worker.bye()
}, () => Worker.connect('upper', SLOTS))
