import EarshotWire
import Testing

@testable import EarshotCore

/// Effect of SET on a running core.
struct SettingRequestTests {
    private func set(_ text: String, by client: ClientID, _ rig: inout CoreRig) {
        guard let setting = SettingWords(text.split(separator: " ").map { String($0) }) else {
            Issue.record("\(text) cannot be said")
            return
        }
        rig.send(.changeSetting(setting), by: client)
    }

    private func limits(_ rig: CoreRig) -> [WorkerLimits] {
        rig.actions.compactMap { if case .worker(.send(_, .limits(let limits))) = $0 { limits } else { nil } }
    }

    @Test func `a setting is told to the supervisor and then answered in normal form`() throws {
        var rig = CoreRig()
        let a = rig.client(1)
        rig.pass { set("origin-spacing 0.500", by: a, &$0) }
        let change = SettingChange.setValue(.originSpacing, 500)
        let words = try #require(SettingWords(["origin-spacing", "0.5"]))
        #expect(rig.actions == [.supervisor(.settingChanged(change)), .client(.send(a, .settingChanged(words)))])
        #expect(rig.core.limits.originRules.defaultSpacingMilliseconds == 500)
    }

    @Test(arguments: ["origin-limit 0", "nothing 3", "origin x", "workers 3", "worker-memory 1000000000", "users root"])
    func `what cannot be set is refused and changes nothing`(text: String) {
        var rig = CoreRig()
        let a = rig.client(1)
        let before = rig.core.settings
        rig.pass { set(text, by: a, &$0) }
        guard rig.actions.count == 1, case .error(let error)? = rig.replies(to: a).first else {
            Issue.record("\(rig.actions)")
            return
        }
        #expect(error.code == "bad-setting" && error.detail?.isEmpty == false)
        #expect(rig.core.settings == before)
    }

    @Test func `workers hear where they may connect to at once`() {
        var rig = CoreRig()
        let a = rig.client(1)
        _ = rig.worker(1)
        rig.pass { set("address-policy public-only", by: a, &$0) }
        #expect(limits(rig).map(\.addressPolicy) == ["public-only"])
        rig.pass { set("address 127.0.0.1 allow", by: a, &$0) }
        #expect(limits(rig).map(\.addressPolicy) == ["public-only, allow 127.0.0.1/32"])
    }

    @Test func `a supervised core takes the number of workers and their memory`() {
        var rig = CoreRig()
        rig.core.shellFeatures.isSupervised = true
        let a = rig.client(1)
        rig.pass { set("workers 3", by: a, &$0) }
        #expect(rig.actions.first == .supervisor(.settingChanged(.setValue(.workers, 3))))
        rig.pass { set("worker-memory 1000000000", by: a, &$0) }
        #expect(rig.actions.first == .supervisor(.settingChanged(.setValue(.workerMemory, 1_000_000_000))))
    }

    @Test func `each bound of the core can be set`() {
        var rig = CoreRig()
        let a = rig.client(1)
        let words = [
            "requests 5", "requests-per-client 4", "requests-per-handler 3", "cool-down 2", "origin-limit 7",
            "origin o.example limit=2",
        ]
        rig.pass { rig in for text in words { set(text, by: a, &rig) } }
        let limits = rig.core.limits
        #expect(
            limits.maximumOpenRequests == 5 && limits.maximumOpenRequestsPerClient == 4
                && limits.maximumOpenRequestsPerHandler == 3)
        #expect(
            limits.maximumCoolDownMilliseconds == 2_000 && limits.originRules.defaultMaximumTransfers == 7
                && limits.originRules.rules.count == 1)
        rig.pass { set("origin o.example default", by: a, &$0) }
        #expect(rig.core.limits.originRules.rules.isEmpty)
    }

    @Test func `workers hear of what concerns them and of nothing else`() throws {
        var rig = CoreRig()
        let a = rig.client(1)
        _ = rig.worker(1)
        rig.core.workerConnected(WorkerID(rawValue: 2), now: rig.now)
        rig.pass { set("origin-limit 3", by: a, &$0) }
        #expect(limits(rig).isEmpty)
        rig.pass { set("inline-bytes 10", by: a, &$0) }
        #expect(limits(rig).map(\.maximumInlineBodyBytes) == [10])
        #expect(limits(rig).map(\.slots) == [nil])
        rig.pass { set("slots 3", by: a, &$0) }
        #expect(limits(rig).map(\.slots) == [3])
        rig.pass { set("slots 3", by: a, &$0) }
        #expect(limits(rig).isEmpty)
        rig.pass { _ = $0.worker(3, slots: 9) }
        #expect(limits(rig).map(\.slots) == [3])
    }

    @Test func `fewer slots drain and more are used when the worker has them`() {
        var rig = CoreRig()
        let a = rig.client(1)
        var worker = WorkerID(rawValue: 0)
        rig.pass { worker = $0.worker(1, slots: 8) }
        rig.pass { rig in for number in 0..<20 { rig.fetch("h", "\(number)", "http://o\(number)/", by: a) } }
        // The last two of eight slots are reserved for class high.
        var running = rig.jobs
        #expect(running.count == 6)
        rig.pass { set("slots 2", by: a, &$0) }
        #expect(rig.jobs.isEmpty && rig.core.audit().isEmpty)
        for left in stride(from: 5, through: 2, by: -1) {
            rig.pass { $0.done(running.removeFirst(), by: worker) }
            #expect(rig.jobs.isEmpty, "\(left) run")
            #expect(rig.core.runningAttemptCount == left && rig.core.audit().isEmpty)
        }
        rig.pass { $0.done(running.removeFirst(), by: worker) }
        #expect(rig.jobs.count == 1)
        running += rig.jobs
        // A higher number of slots takes effect when the worker offers it.
        rig.pass { set("slots 12", by: a, &$0) }
        running += rig.jobs
        #expect(rig.core.runningAttemptCount == 6)
        rig.pass { $0.core.workerMessageReceived(.slots(12), body: nil, from: worker, now: $0.now) }
        #expect(rig.jobs.count == 3 && rig.core.runningAttemptCount == 9)
        rig.pass { $0.core.workerMessageReceived(.slots(1), body: nil, from: worker, now: $0.now) }
        #expect(rig.core.audit().isEmpty)
        running += rig.jobs
    }

    @Test func `a worker that lacks a scheme has no slots whatever it says`() {
        var rig = CoreRig()
        let a = rig.client(1)
        let worker = WorkerID(rawValue: 5)
        rig.core.workerConnected(worker, now: rig.now)
        var ready = Ready(slots: 4)
        ready.schemes = ["http"]
        rig.core.workerMessageReceived(.ready(ready), body: nil, from: worker, now: rig.now)
        rig.core.workerMessageReceived(.slots(9), body: nil, from: worker, now: rig.now)
        rig.pass { $0.fetch("h", "1", "http://o/", by: a) }
        #expect(rig.jobs.isEmpty)
    }

    @Test func `settings that are read again forget what was set`() {
        var rig = CoreRig()
        let a = rig.client(1)
        _ = rig.worker(1)
        rig.pass { rig in
            for text in ["slots 3", "origin-limit 9", "origin o limit=1"] { set(text, by: a, &rig) }
        }
        rig.pass { $0.core.replaceSettings(Settings(), now: $0.now) }
        #expect(rig.core.limits == CoreLimits())
        #expect(limits(rig).map(\.slots) == [nil])
        #expect(rig.core.settings == Settings())
    }

    @Test func `the list of settings names each with its source`() throws {
        var rig = CoreRig()
        let a = rig.client(1)
        rig.pass { rig in
            set("origin o.example limit=1", by: a, &rig)
            rig.send(.query(.settings), by: a)
        }
        let json = rig.actions.compactMap { action in
            if case .client(.answerQuery(_, .settings, let json)) = action {
                String(decoding: json, as: UTF8.self)
            } else {
                nil
            }
        }
        let text = try #require(json.first)
        for name in SettingName.allCases { #expect(text.contains(#"{"name":"\#(name.rawValue)","value":""#)) }
        #expect(
            text.contains(#"{"name":"origin","pattern":"o.example","value":"limit=1","source":"set"}"#))
    }
}
