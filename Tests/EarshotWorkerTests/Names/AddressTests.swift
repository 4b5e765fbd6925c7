import EarshotWire
import Testing

@testable import EarshotWorker
@testable import TestPeers

/// Addresses that a worker connects to or refuses.
struct AddressTests {
    @Test(
        "public-only keeps loopback out in whatever form it is written",
        arguments: [
            "127.0.0.1", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "0", "[::1]", "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:7f00:0001]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "localhost",
            "a.localhost",
            "localhost.", "127.0.0.1.", "[fe80::1]", "[fe80::1%25lo]", "[fe80::1%lo]",
        ])
    func publicOnly(host: String) throws {
        let bed = try Bed(addressPolicy: "public-only") { _ in .ok([]) }
        #expect(try bed.failure(bed.job(bed.origin.url(host: host))) == "address-refused")
        #expect(bed.origin.accepted == 0)
    }

    @Test(
        "a rule of one's own opens what a preset keeps shut",
        arguments: ["allow 127.0.0.1", "allow 127.0.0.0/8, deny 127.0.0.2", "allow name.example"])
    func opened(rule: String) throws {
        let bed = try Bed(addressPolicy: "public-only, \(rule)", names: .loopback()) { _ in .ok([]) }
        let job = bed.job(bed.origin.url(host: "name.example"))
        #expect(try bed.fetch(job))
        #expect(bed.broker.completion(job.attempt)?.completion.status == 200)
    }

    @Test func `an address with a zone is connected to`() throws {
        let bed = try Bed { _ in .ok([]) }
        #expect(try bed.failure(bed.job("http://[fe80::1%25lo]:1/")) == "connect-failed")
    }

    @Test func `a name is judged by the address it has`() throws {
        let bed = try Bed(addressPolicy: "public-only", names: .loopback()) { _ in .ok([]) }
        #expect(try bed.failure(bed.job(bed.origin.url(host: "name.example"))) == "address-refused")
        #expect(bed.origin.accepted == 0)
    }

    @Test(arguments: [3, 25] as [UInt8])
    func `a name with many addresses that are all denied is refused at once`(count: UInt8) throws {
        let bed = try Bed(addressPolicy: "public-only", names: .loopback(count)) { _ in .ok([]) }
        var job = bed.job(bed.origin.url(host: "name.example"))
        // A part of it is longer than the bed's time limit.
        job.connectTimeoutMilliseconds = 1_000_000
        job.timeoutMilliseconds = 1_000_000
        #expect(try bed.failure(job) == "address-refused")
        #expect(bed.origin.accepted == 0)
    }

    @Test func `a name with an address that is allowed is fetched from there`() throws {
        let bed = try Bed(addressPolicy: "deny ::1") { _ in .ok([]) }
        let job = bed.job(bed.origin.url(host: "localhost"))
        #expect(try bed.fetch(job))
        #expect(bed.broker.completion(job.attempt)?.completion.status == 200)
    }

    @Test func `a connection that stands is judged again before each request`() throws {
        let bed = try Bed { _ in .ok([1]) }
        let job = bed.job()
        #expect(try bed.fetch(job))
        #expect(bed.broker.completion(job.attempt) != nil)
        try bed.sendLimits(addressPolicy: "public-only")
        #expect(try bed.failure(bed.job()) == "address-refused")
        #expect(bed.origin.accepted == 1)
        #expect(bed.origin.requests.count == 1)
    }

    @Test(arguments: [
        ("", "public-only"), ("allow 127.0.0.0/8", "public-only, allow 10.0.0.0/8"), ("public-only", "allow 127.0.0.1"),
        ("", "allow everything, please"),
    ])
    func `a job's own policy applies besides that of the broker`(broker: String, job policy: String) throws {
        let bed = try Bed(addressPolicy: broker) { _ in .ok([]) }
        var job = bed.job()
        job.addressPolicy = policy
        #expect(try bed.failure(job) == "address-refused")
        #expect(bed.origin.accepted == 0)
    }

    @Test func `a job's own policy ends with the job`() throws {
        let bed = try Bed { _ in .ok([1]) }
        var job = bed.job()
        job.addressPolicy = "public-only"
        #expect(try bed.failure(job) == "address-refused")
        let next = bed.job()
        #expect(try bed.fetch(next))
        #expect(bed.broker.completion(next.attempt) != nil)
    }

    @Test func `a policy that cannot be read allows nothing`() throws {
        let bed = try Bed(addressPolicy: "allow everything, please") { _ in .ok([]) }
        #expect(try bed.failure(bed.job()) == "address-refused")
        #expect(try bed.failure(bed.job(bed.origin.url(host: "[::1]"))) == "address-refused")
    }

    @Test func `what nobody listens to is refused by the host and not by the policy`() throws {
        let bed = try Bed(addressPolicy: "deny ::1") { _ in .ok([]) }
        #expect(try bed.failure(bed.job("http://localhost:\(try Loopback.freePort())/")) == "connect-refused")
    }
}
