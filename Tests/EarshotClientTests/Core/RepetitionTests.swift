import EarshotWire
import Testing

@testable import EarshotClient

/// Order of the messages that the next session repeats.
@Suite struct RepetitionTests {
    private func repeated(_ core: inout ClientCore) -> [ClientMessage] {
        _ = core.linkLost()
        _ = core.linkOpened()
        return sent(core.received(welcome(2)))
    }

    @Test func `removals come first, then subscriptions, requests and queries`() throws {
        var core = ready()
        let setting = try #require(SettingWords(["slots", "3"]))
        _ = core.query(.status)
        _ = core.fetch(fetch("1"))
        _ = core.changeSetting(setting)
        _ = core.fetch(fetch("gone"))
        _ = core.cancel(key("gone"))
        _ = core.remove(pattern("page/1"))
        _ = core.subscribe(pattern("page/"))
        _ = core.query(.ping)
        #expect(
            repeated(&core) == [
                .removeRequest(handler, key("gone").request), .removeHandlers(pattern("page/1")),
                .subscribe(pattern("page/")),
                .fetch(fetch("1")), .query(.status), .changeSetting(setting), .query(.ping),
            ])
        // The answers match in the new order.
        #expect(core.received(requestRemoved("gone")) == [.report(.cancelled(key("gone"), wasOpen: true))])
        #expect(core.received(.queryAnswer(.status)) == [.report(.queryAnswered(.status))])
        #expect(core.received(.settingChanged(setting)) == [.report(.settingChanged(setting))])
        #expect(
            repeated(&core) == [
                .removeHandlers(pattern("page/1")), .subscribe(pattern("page/")), .fetch(fetch("1")), .query(.ping),
            ])
    }

    @Test func `a bounded number of removals waits for a broker`() {
        var core = ready()
        _ = core.remove(pattern("unanswered"))
        _ = core.linkLost()
        for number in 1..<ClientCore.maximumUnsentRemovals { #expect(core.remove(pattern("page/\(number)")) != nil) }
        _ = core.fetch(fetch("1"))
        #expect(core.remove(.handler(handler)) == nil)
        #expect(core.requests.count == 1, "a refused removal changes nothing")
        _ = core.linkOpened()
        #expect(core.remove(.handler(handler)) == nil)
        var messages = sent(core.received(welcome(2)))
        #expect(messages.count == SentNumbers.maximumUnanswered)
        #expect(core.remove(.handler(handler)) == [], "it waits for answers")
        while let removal = core.unansweredMessages.first, case .remove(let pattern) = removal.content {
            messages += sent(
                core.messageReceived(
                    NumberedAnswer(.handlersRemoved(pattern, count: 0), answeredNumber: removal.messageNumber)))
        }
        #expect(messages.count == ClientCore.maximumUnsentRemovals + 2)
        #expect(messages.suffix(2) == [.fetch(fetch("1")), .removeHandlers(.handler(handler))])
    }

    @Test func `requests with and without a subscription are repeated in their original order`() {
        var core = ready()
        var submission = fetch("2")
        submission.options.subscribes = false
        _ = core.fetch(fetch("1"))
        _ = core.fetch(submission)
        _ = core.fetch(fetch("3"))
        for _ in 1...2 {
            #expect(repeated(&core) == [.fetch(fetch("1")), .fetch(submission), .fetch(fetch("3"))])
        }
    }

    @Test func `a removal ends the subscriptions to its handlers, and none to a subtree`() {
        var core = ready()
        for name in ["page/1", "page/2", "page/2/", "other"] { _ = core.subscribe(pattern(name)) }
        _ = core.remove(pattern("page/1"))
        _ = core.received(.handlersRemoved(pattern("page/1"), count: 0))
        #expect(repeated(&core) == ["page/2", "page/2/", "other"].map { .subscribe(pattern($0)) })
        _ = core.remove(pattern("page/"))
        _ = core.received(.handlersRemoved(pattern("page/"), count: 0))
        #expect(core.subscribe(pattern("page/2")) == [.send(.subscribe(pattern("page/2")))], "it can be renewed")
        #expect(repeated(&core) == ["page/2/", "other", "page/2"].map { .subscribe(pattern($0)) })
    }
}
