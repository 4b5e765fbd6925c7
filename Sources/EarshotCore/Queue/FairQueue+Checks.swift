internal import EarshotWire

extension FairQueue {
    private typealias Check = (Bool, @autoclosure () -> String) -> Void

    /// Returns a sentence for each violated invariant. O(queued interests).
    func checkInvariants() -> [String] {
        var faults: [String] = []
        func check(_ holds: Bool, _ fault: @autoclosure () -> String) { if !holds { faults.append(fault()) } }
        checkInterests(check)
        checkLanes(check)
        checkRoots(check)
        checkParkings(check)
        check(
            rootNumbers.count == roots.count && laneNumbers.count == lanes.count && leafNumbers.count == leaves.count
                && parkingNumbers.count == parkings.count, "12: a key of the queue has no record")
        return faults
    }

    private func checkInterests(_ check: Check) {
        var counts = lines.map { [Int](repeating: 0, count: $0.counts.count) }
        var sum = 0
        for leaf in leaves.indices {
            let key = leaves[leaf].key
            guard lanes.contains(key.lane) else {
                check(false, "4: handler \(key.handler) is in no lane")
                continue
            }
            let members = interestChains.members(of: leaves[leaf].interests)
            check(!members.isEmpty, "12: handler \(key.handler) has no queued interest")
            check(
                members.allSatisfy { leafOfInterest[Int($0)].wrappedValue == leaf },
                "4: handler \(key.handler) has another's interest")
            counts[Int(pool(of: key.lane))][Int(lanes[key.lane].priority.rawValue)] += members.count
            sum += members.count
            check(leafNumbers.find(key.hash) { leaves[$0].key == key } == leaf, "4: a handler has another number")
        }
        check(sum == count, "4: \(sum) interests are queued, not \(count)")
        check(
            leafOfInterest.count { $0.wrappedValue != nil } == count,
            "4: \(count) interests are queued, others have a place")
        check(counts == lines.map(\.counts), "4: the counts by class are \(counts)")
    }

    private func checkLanes(_ check: Check) {
        var counts: [Int32: Int] = [:]
        for leaf in leaves.indices { counts[leaves[leaf].key.lane, default: 0] += 1 }
        for lane in lanes.indices {
            let record = lanes[lane]
            let (usual, fresh) = (leafChains.members(of: record.leaves), leafChains.members(of: record.fresh))
            check(
                usual.allSatisfy { leaves[$0].key.lane == lane && !leaves[$0].isFresh }
                    && fresh.allSatisfy { leaves[$0].key.lane == lane && leaves[$0].isFresh },
                "4: lane \(lane) has a wrong handler")
            let count = counts[lane, default: 0]
            check(usual.count + fresh.count == count, "4: lane \(lane) has turns for some of \(count) handlers")
            check(count > 0, "12: lane \(lane) is empty")
            check(
                laneNumbers.find(record.key.hash) { lanes[$0].key == record.key } == lane,
                "4: a lane has another number")
            check(
                roots.contains(record.key.root) && roots[record.key.root].key.priority == record.priority,
                "7: lane \(lane) has no root of its class")
        }
    }

    private func checkRoots(_ check: Check) {
        var counts: [Int32: Int] = [:]
        for lane in lanes.indices { counts[lanes[lane].key.root, default: 0] += 1 }
        var rotating = 0
        for number in roots.indices {
            let root = roots[number]
            let count = counts[number, default: 0]
            check(root.laneCount == count && count > 0, "12: root \(number) counts \(root.laneCount) of \(count) lanes")
            check(
                rootNumbers.find(root.key.hash) { roots[$0].key == root.key } == number, "4: a root has another number")
            check(
                root.isInRotation != root.lanes.isEmpty,
                "4: root \(number) has lanes and no turns, or turns and no lanes")
            let members = laneChains.members(of: root.lanes)
            rotating += members.count
            let isRotating = members.allSatisfy { lane in
                if lanes[lane].key.root == number, case .rotating = lanes[lane].phase { true } else { false }
            }
            check(isRotating, "4: root \(number) has a wrong lane")
        }
        let isRotating = lanes.indices.count { if case .rotating = lanes[$0].phase { true } else { false } }
        check(rotating == isRotating, "4: \(isRotating) lanes rotate, \(rotating) have turns")
        var turning = 0
        for (pool, line) in lines.enumerated() {
            for (row, rotation) in line.rotations.enumerated() {
                let members = rootChains.members(of: rotation)
                turning += members.count
                check(
                    members.allSatisfy {
                        roots[$0].isInRotation && Int(roots[$0].key.pool) == pool
                            && Int(roots[$0].key.priority.rawValue) == row
                    }, "4: pool \(pool) has a wrong root")
            }
        }
        check(turning == roots.indices.count { roots[$0].isInRotation }, "4: a root has no turns")
    }

    private func checkParkings(_ check: Check) {
        var parked = 0
        for number in parkings.indices {
            let parking = parkings[number]
            check(!parking.isEmpty, "12: no lane is parked at \(parking.key)")
            check(parkingNumber(parking.key) == number, "4: \(parking.key) has another number")
            for (row, chain) in parking.byClass.enumerated() {
                let members = laneChains.members(of: chain)
                parked += members.count
                check(
                    members.allSatisfy {
                        lanes[$0].phase == .parked(parking.key) && Int(lanes[$0].priority.rawValue) == row
                    }, "4: \(parking.key) has a wrong lane")
            }
        }
        let count = lanes.indices.count { if case .parked = lanes[$0].phase { true } else { false } }
        check(parked == count, "4: \(count) lanes are parked, \(parked) wait")
    }
}
