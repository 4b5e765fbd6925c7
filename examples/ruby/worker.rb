# worker.rb [MILLISECONDS]: Answers URLs such as upper:hello, with HELLO. Each job takes MILLISECONDS.

require_relative 'earshot'

SLOTS = 4
Job = Struct.new(:attempt, :text, :due)

delay, *more = ARGV
Earshot.usage('worker.rb [MILLISECONDS]') unless more.empty? && (delay || '0').match?(/\A\d{1,7}\z/)

# The signal handler writes to a pipe, so that a signal just before the wait still ends the wait.
leaving = false
wake, woken = IO.pipe
trap('TERM') do
  leaving = true
  woken.write_nonblock('.', exception: false)
end

now = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) }

Earshot.register('upper', SLOTS) do |bus|
  warn 'earshot: serving upper:'
  jobs = [] # Running jobs. All take the same time, so the first one is due first.
  until leaving && jobs.empty?
    left = [jobs.first.due - now.call, 0].max unless jobs.empty?
    if bus.wait(leaving ? nil : wake, left)
      message = bus.receive
      attempt, url = message.operands
      case message.verb
      when 'JOB'
        text = url.partition(':').last
        if leaving || jobs.size == SLOTS
          bus.failed(attempt, 'worker-lost', 'no room')
        elsif text.empty?
          bus.failed(attempt, 'worker-failed', 'no text follows upper:')
        else
          jobs << Job.new(attempt, text.upcase, now.call + delay.to_i / 1000.0)
        end
      when 'CANCEL' # Cancels a running job. Ignores a job that has ended.
        bus.failed(attempt, 'cancelled', 'the broker cancelled the job') if jobs.reject! { |job| job.attempt == attempt }
      when 'PING' then bus.pong
      when 'DRAIN' then leaving = true
      end
    end
    while !jobs.empty? && jobs.first.due <= now.call
      job = jobs.shift
      bus.done(job.attempt, 'text/plain', job.text)
    end
  end
  bus.bye
end
