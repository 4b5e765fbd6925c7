import Testing

@testable import earshot

/// The URLs of a run in their order, also while more arrive.
@Suite struct DownloadListTests {
    private func entries(_ names: String...) -> [ListEntry] { names.map { ListEntry(url: "http://h/\($0)") } }

    @Test func `items have the order and the index of their URLs, also of those that arrive later`() {
        var list = DownloadList(entries("a", "b"), readsInput: true, jobs: nil)
        var taken: [String] = []
        func takeAll() {
            while let item = list.takeNext(name: { "file-\($0.index)" }) {
                taken.append("\(item.index) \(item.entry.url) \(item.name ?? "")")
            }
        }
        var needsMore = list.needsMore()
        #expect(!needsMore)
        takeAll()
        needsMore = list.needsMore()
        #expect(needsMore && list.count == 2)
        list.add(entries("c"))
        needsMore = list.needsMore()
        #expect(!needsMore && list.count == 3)
        takeAll()
        #expect(taken == ["1 http://h/a file-1", "2 http://h/b file-2", "3 http://h/c file-3"])
        #expect(!list.isExhausted)
        list.close()
        #expect(list.isExhausted && list.count == 3)
    }

    @Test func `an item waits for its origin, and the others are named before it starts`() throws {
        var list = DownloadList(entries("a", "b", "c"), readsInput: false, jobs: 1)
        var named: [Int] = []
        func next() -> OutputItem? {
            list.takeNext {
                named.append($0.index)
                return "n"
            }
        }
        let first = try #require(next())
        #expect(next() == nil)
        #expect(named == [1, 2, 3] && !list.isExhausted)
        list.itemEnded(first)
        #expect(next()?.index == 2)
        #expect(next() == nil)
        let rest = list.takeAllUnstarted(name: { _ in nil })
        #expect(rest.map(\.index) == [3])
        #expect(list.isExhausted)
    }

    @Test func `the rest has the URLs that were not taken`() {
        var list = DownloadList(entries("a", "b", "c"), readsInput: false, jobs: nil)
        let first = list.takeNext(name: { _ in nil })
        let rest = list.takeAllUnstarted(name: { "\($0.index)" })
        #expect(first?.index == 1 && rest.map(\.name) == ["2", "3"])
        let next = list.takeNext(name: { _ in nil })
        #expect(next == nil)
    }
}
