import EarshotWire
import Testing

@testable import EarshotCore

/// Sessions with `rights: user`: of the administrator, with the rights of a user.
struct UserRightsTests {
    private static let laptop = PrincipalName("key:laptop")!

    private var rig = CoreRig()

    private func isAuthorized(_ client: ClientID) -> Bool {
        !rig.replies(to: client).contains {
            if case .error(let error) = $0 { error.code == "not-authorized" } else { false }
        }
    }

    /// The JSON of the last answer to a client.
    private func answer(_ client: ClientID) -> String? {
        rig.actions.compactMap {
            if case .client(.answerQuery(client, _, let json)) = $0 {
                String(decoding: json, as: UTF8.self)
            } else {
                nil
            }
        }.last
    }

    @Test mutating func `it may do what a user may do, and not what is reserved`() throws {
        let door = rig.client(1) { $0.hasUserRights = true }
        let setting = try #require(SettingWords(["slots", "3"]))
        for query in [Query.origins, .workers, .settings, .cluster] {
            rig.pass { $0.send(.query(query), by: door) }
            #expect(!isAuthorized(door), "\(query)")
        }
        rig.pass { $0.send(.changeSetting(setting), by: door) }
        #expect(!isAuthorized(door) && rig.core.settings[.slots] != 3)
        for change: @Sendable (inout Route) -> Void in [
            { $0.caFile = "/f" }, { $0.clientCertificate = "/f" }, { $0.clientKey = "/f" },
        ] {
            rig.pass { $0.fetch("h", "1", "http://h/", by: door) { change(&$0.options.route) } }
            #expect(!isAuthorized(door))
        }
        rig.pass { $0.fetch("h", "1", "http://h/", by: door) }
        #expect(isAuthorized(door) && rig.core.ledger.requests.pending == 1)
    }

    @Test mutating func `it has the namespace, flights and paths of the administrator`() {
        let worker = rig.worker()
        let (own, door) = (rig.client(1), rig.client(2) { $0.hasUserRights = true })
        rig.pass { rig in
            rig.fetch("h", "1", "http://h/", by: own)
            rig.fetch("h", "2", "http://h/", by: door)
        }
        let jobs = rig.jobs
        #expect(jobs.count == 1)
        rig.pass { $0.done(jobs[0], by: worker) }
        #expect(
            rig.terminals(for: door) == ["h 1 200", "h 2 200"] && rig.terminals(for: own) == ["h 1 200", "h 2 200"])
        #expect(rig.core.principal(of: door) == nil)
    }

    @Test mutating func `it names no other principal, and sees none`() throws {
        let other = rig.client(1) { $0.principal = Self.laptop }
        let (own, door) = (rig.client(2), rig.client(3) { $0.hasUserRights = true })
        rig.pass { rig in
            rig.fetch("theirs", "1", "http://h/theirs", by: other)
            rig.fetch("ours", "1", "http://h/ours", by: own)
        }
        for query in [Query.handlers, .requests, .status, .ledger] {
            rig.pass { $0.send(.query(query), by: own) }
            let all = try #require(answer(own))
            rig.pass { $0.send(.query(query), by: door) }
            let seen = try #require(answer(door))
            #expect(!seen.contains("theirs") && !seen.contains("key:laptop"), "\(query)")
            #expect(seen.contains("ours") == all.contains("ours"), "\(query)")
            #expect(!seen.contains("flights") && !seen.contains("workers"), "\(query)")
        }
        let ours = (HandlerID("ours"), RequestID("1"))
        rig.pass { $0.send(.query(.explainRequest(ours.0!, ours.1!)), by: own) }
        #expect(answer(own)?.contains("worker") == true)
        rig.pass { $0.send(.query(.explainRequest(ours.0!, ours.1!)), by: door) }
        #expect(answer(door)?.contains("ours") == true && answer(door)?.contains("slots") == false)
        let claimant = ClientID(rawValue: 9)
        rig.pass { rig in
            rig.connect(claimant)
            var hello = Hello()
            (hello.principal, hello.hasUserRights) = (Self.laptop, true)
            rig.send(.hello(hello), by: claimant)
        }
        #expect(!isAuthorized(claimant))
    }

    @Test mutating func `a token resumes a session with the same rights only`() {
        for (number, (first, second)) in [(true, false), (false, true), (true, true), (false, false)].enumerated() {
            let name = UInt64(10 + 2 * number)
            let old = rig.client(name) {
                ($0.leaseMilliseconds, $0.hasUserRights) = (60_000, first)
            }
            rig.pass { $0.core.clientLost(old, now: $0.now) }
            var id: ClientID?
            rig.pass { rig in
                id = rig.client(name + 1) {
                    ($0.leaseMilliseconds, $0.hasUserRights) = (60_000, second)
                    $0.token = CoreRig.token(of: old)
                }
            }
            let isResumed = rig.replies(to: id!).contains {
                if case .welcome(let welcome) = $0 { welcome.lastReceivedNumber != nil } else { false }
            }
            #expect(isResumed == (first == second))
        }
        #expect(rig.core.audit() == [])
    }
}
