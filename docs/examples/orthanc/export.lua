-- writes each new radiograph to the folder in, but no results
function OnStoredInstance(instanceId, tags)
  if tags["Modality"] == "DX" or tags["Modality"] == "CR" then
    local path = "in/" .. instanceId .. ".dcm"
    local file = assert(io.open(path .. ".part", "wb"))
    file:write(RestApiGet("/instances/" .. instanceId .. "/file"))
    file:close()
    os.rename(path .. ".part", path)
  end
end
