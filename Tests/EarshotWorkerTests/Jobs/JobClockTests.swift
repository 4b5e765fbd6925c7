import EarshotHTTP
import EarshotLoop
import EarshotWire
import Testing

@testable import EarshotWorker

/// Deadlines of a job with a `timeout` of 1,000 ms and a connect timeout of 300 ms.
struct JobClockTests {
    private func time(_ milliseconds: Int) -> LoopTime { LoopTime(nanoseconds: Int64(milliseconds) * 1_000_000) }

    private func clock(connect: Int = 300) -> JobClock {
        var job = Job(attempt: AttemptID(broker: BrokerInstance(rawValue: 1), flight: 1, attempt: 1), url: "http://a/")
        job.timeoutMilliseconds = 1_000
        job.connectTimeoutMilliseconds = connect
        return JobClock(job, now: time(0))
    }

    @Test(
        arguments: [
            (300, 300, FailureCode.connectTimeout), (3_000, 1_000, .timeout),
        ] as [(Int, Int, FailureCode)])
    func `a lookup ends with the first of two deadlines`(connect: Int, deadline: Int, code: FailureCode) {
        var clock = clock(connect: connect)
        #expect(clock.nextDeadline(.resolving, now: time(0)) == time(deadline))
        #expect(clock.overdueRefusal(.resolving, now: time(deadline - 1), silentMilliseconds: nil) == nil)
        #expect(
            clock.overdueRefusal(.resolving, now: time(deadline), silentMilliseconds: nil)?.code == code)
    }

    @Test func `the worker's own work has no deadline, and the times begin after it`() {
        var clock = clock()
        #expect(clock.nextDeadline(.hashingFile, now: time(50_000)) == time(51_000))
        #expect(clock.overdueRefusal(.hashingFile, now: time(50_000), silentMilliseconds: nil) == nil)
        clock.startConnectTimeout(now: time(50_000))
        #expect(clock.nextDeadline(.resolving, now: time(50_000)) == time(50_300))
        #expect(clock.remainingConnectTime(now: time(50_100)) == .milliseconds(200))
    }

    @Test func `no time is left as zero, which selects libcurl's own limit`() {
        #expect(clock().remainingConnectTime(now: time(10_000)) == .milliseconds(1))
    }

    @Test func `each byte of a body restarts the silence`() {
        var clock = clock()
        clock.receivedBody(now: time(900))
        #expect(clock.nextDeadline(.body, now: time(900)) == time(1_900))
        #expect(clock.overdueRefusal(.body, now: time(1_899), silentMilliseconds: nil) == nil)
        #expect(clock.overdueRefusal(.body, now: time(1_900), silentMilliseconds: 0)?.code == .timeout)
    }

    @Test func `bytes of an incomplete header line count, as the kernel saw them`() {
        var clock = clock()
        #expect(clock.overdueRefusal(.receivingHeader, now: time(1_000), silentMilliseconds: 400) == nil)
        #expect(clock.nextDeadline(.receivingHeader, now: time(1_000)) == time(1_600))
        #expect(clock.overdueRefusal(.receivingHeader, now: time(1_600), silentMilliseconds: 1_000)?.code == .timeout)
    }

    @Test func `a connection that never was is silent`() {
        var clock = clock()
        #expect(clock.overdueRefusal(.receivingHeader, now: time(1_000), silentMilliseconds: nil)?.code == .timeout)
    }

    @Test func `a header of many lines ends within ten timeouts`() {
        var clock = clock()
        for moment in stride(from: 500, through: 10_400, by: 900) { clock.receivedHeaderLine(now: time(moment)) }
        #expect(clock.nextDeadline(.receivingHeader, now: time(10_400)) == time(10_500))
        let refusal = clock.overdueRefusal(.receivingHeader, now: time(10_500), silentMilliseconds: 0)
        #expect(refusal == Refusal(.timeout, "The header of the response did not end in time."))
    }

    @Test func `a trailer of many lines ends within ten timeouts, and a body has no such bound`() {
        var clock = clock()
        clock.receivedHeaderLine(now: time(0))
        for moment in stride(from: 900, through: 90_000, by: 900) { clock.receivedBody(now: time(moment)) }
        #expect(clock.nextDeadline(.body, now: time(90_000)) == time(91_000))
        for moment in stride(from: 90_500, through: 100_400, by: 900) { clock.receivedHeaderLine(now: time(moment)) }
        #expect(clock.overdueRefusal(.body, now: time(100_499), silentMilliseconds: 0) == nil)
        #expect(clock.nextDeadline(.body, now: time(100_499)) == time(100_500))
        let refusal = clock.overdueRefusal(.body, now: time(100_500), silentMilliseconds: 0)
        #expect(refusal == Refusal(.timeout, "The trailer of the response did not end in time."))
    }

    @Test func `a second response has ten timeouts of its own for its header`() {
        var clock = clock()
        clock.receivedHeaderLine(now: time(0))
        clock.restartConnectTimeout(now: time(9_500))
        clock.receivedHeaderLine(now: time(9_500))
        #expect(clock.nextDeadline(.receivingHeader, now: time(9_500)) == time(10_500))
    }

    @Test func `a second connection has a connect timeout of its own`() {
        var clock = clock()
        clock.receivedHeaderLine(now: time(900))
        clock.restartConnectTimeout(now: time(1_400))
        #expect(clock.overdueRefusal(.resolving, now: time(1_400), silentMilliseconds: nil) == nil)
        #expect(clock.nextDeadline(.resolving, now: time(1_400)) == time(1_700))
        #expect(clock.remainingConnectTime(now: time(1_500)) == .milliseconds(200))
    }
}
