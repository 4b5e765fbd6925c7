// worker.mjs [MILLISECONDS]: serves URLs such as upper:hello, with HELLO. Each job takes so long, as real work would.

import { Worker, run, usage } from './earshot.mjs'

const SLOTS = 4

const [delay = '0', ...more] = process.argv.slice(2)
if (!/^\d{1,7}$/.test(delay) || more.length) usage('worker.mjs [MILLISECONDS]')

await run(async worker => {
  const jobs = new Map() // the timer of each attempt
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
    if (!text) return worker.failed(attempt, 'worker-failed', 'no text stands behind upper:')
    const finish = () => end(attempt, () => worker.done(attempt, 'text/plain', text.toUpperCase()))
    jobs.set(attempt, setTimeout(finish, Number(delay)))
  }

  async function serve() {
    for await (const { verb, operands: [attempt, url] } of worker) {
      if (verb === 'JOB') begin(attempt, url)
      // One that has been answered is passed over.
      else if (verb === 'CANCEL' && jobs.has(attempt))
        end(attempt, () => worker.failed(attempt, 'cancelled', 'nobody wants it'))
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
