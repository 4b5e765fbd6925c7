import Testing

@testable import earshot

/// The limit of pending requests to each origin in a run.
@Suite struct OriginLanesTests {
    private let a = "http://a.example/1"
    private let b = "https://b.example/"

    @Test func `an origin has as many pending items as the limit`() {
        var lanes = OriginLanes<Int>(limit: 2)
        #expect((1...5).map { lanes.startOrEnqueue($0, of: a) } == [true, true, false, false, false])
        #expect(lanes.startOrEnqueue(6, of: b) == true)
        #expect(lanes.takeNext() == nil)
        #expect(!lanes.isEmpty && lanes.waitingItems == [3, 4, 5])
        lanes.releasePlace(of: "http://A.example:80/2")
        #expect(lanes.takeNext() == 3)
        #expect(lanes.waitingItems == [4, 5])
        #expect(lanes.takeNext() == nil)
        lanes.releasePlace(of: a)
        lanes.releasePlace(of: a)
        #expect([lanes.takeNext(), lanes.takeNext(), lanes.takeNext()] == [4, 5, nil])
        #expect(lanes.isEmpty)
        for _ in 1...2 { lanes.releasePlace(of: a) }
        #expect(lanes.takeNext() == nil)
        #expect((7...9).map { lanes.startOrEnqueue($0, of: a) } == [true, true, false])
    }

    @Test func `an item that ends at once frees its place`() {
        var lanes = OriginLanes<Int>(limit: 1)
        #expect(lanes.startOrEnqueue(0, of: a) == true)
        for item in 1...1_000 { #expect(lanes.startOrEnqueue(item, of: a) == false) }
        for item in 1...1_000 {
            lanes.releasePlace(of: a)
            #expect(lanes.takeNext() == item)
        }
        #expect(lanes.isEmpty)
    }

    @Test func `ports and schemes distinguish origins, and malformed URLs share one`() {
        var lanes = OriginLanes<Int>(limit: 1)
        for url in ["http://a/", "https://a/", "http://a:8080/", "x y"] {
            #expect(lanes.startOrEnqueue(0, of: url) == true, "\(url)")
        }
        for url in ["http://a:80/x", "https://a:443", "nonsense"] {
            #expect(lanes.startOrEnqueue(0, of: url) == false, "\(url)")
        }
    }

    @Test func `waiting items are bounded`() {
        var lanes = OriginLanes<Int>(limit: 1)
        #expect(lanes.startOrEnqueue(0, of: a) == true)
        for item in 0..<OriginLanes<Int>.maximumWaitingItems {
            if !lanes.hasRoom { Issue.record("full at \(item)") }
            _ = lanes.startOrEnqueue(item, of: a)
        }
        #expect(!lanes.hasRoom)
    }
}
